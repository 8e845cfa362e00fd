package main

import (
	"bytes"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

// update writes what is generated instead of checking it: `make docs`.
var update = flag.Bool("update", false, "write the generated parts of the documentation")

const readme = "README.md"

func TestReadmeHasEveryConfigurationKey(t *testing.T) {
	var table bytes.Buffer
	require.NoError(t, config.WriteMarkdown(&table))
	const begin, end = "<!-- config: written by `make docs` -->\n", "<!-- /config -->"
	text := readRepo(t, readme)
	head, rest, ok := strings.Cut(text, begin)
	require.True(t, ok)
	_, tail, ok := strings.Cut(rest, end)
	require.True(t, ok)
	want := head + begin + table.String() + end + tail
	if *update {
		require.NoError(t, os.WriteFile("../../"+readme, []byte(want), 0o600))
		return
	}
	require.Equal(t, want, text, "run `make docs`")
}

// consoleLines are the commands that a document asks its reader to type.
func consoleLines(text string) []string {
	var lines []string
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(strings.ReplaceAll(block[1], "\\\n", " ")) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				lines = append(lines, strings.TrimSpace(command))
			}
		}
	}
	return lines
}

// Every command of the program in the documents exists and takes the flags and
// arguments that are shown. What the two commands at the top do is checked by CI.
func TestDocumentedCommandsAreAccepted(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadDir("../../docs")
	require.NoError(t, err)
	documents := []string{readme}
	for _, d := range docs {
		documents = append(documents, "docs/"+d.Name())
	}
	known := 0
	for _, d := range documents {
		for _, line := range consoleLines(readRepo(t, d)) {
			for _, start := range []string{"./ncmp-inventory ", "ncmp-inventory ", "go run ./cmd/ncmp-inventory "} {
				if args, ok := strings.CutPrefix(line, start); ok {
					known++
					requireAccepted(t, d, strings.Fields(args))
				}
			}
		}
	}
	require.Greater(t, known, 5)
}

func requireAccepted(t *testing.T, document string, args []string) {
	t.Helper()
	root := newRoot(&app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard})
	cmd, rest, err := root.Find(args)
	require.NoError(t, err, "%s: %s", document, args)
	require.NotSame(t, root, cmd, "%s: %s", document, args)
	require.NoError(t, cmd.ParseFlags(rest), "%s: %s", document, args)
	require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%s: %s", document, args)
	require.NoError(t, cmd.ValidateRequiredFlags(), "%s: %s", document, args)
}

// Paths in the documents lead somewhere.
func TestDocumentedPathsExist(t *testing.T) {
	t.Parallel()
	text := readRepo(t, readme)
	for _, m := range regexp.MustCompile(`\]\(([a-zA-Z][^):]*)\)`).FindAllStringSubmatch(text, -1) {
		require.FileExists(t, "../../"+m[1])
	}
	_, files, ok := strings.Cut(text, "## Where things are")
	require.True(t, ok)
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(files, -1) {
		require.DirExists(t, "../../"+m[1])
	}
}
