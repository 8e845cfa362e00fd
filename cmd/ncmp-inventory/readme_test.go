package main

import (
	"bytes"
	"flag"
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

// Paths in the list of directories lead somewhere.
func TestDocumentedPathsExist(t *testing.T) {
	t.Parallel()
	_, files, ok := strings.Cut(readRepo(t, readme), "## Where things are")
	require.True(t, ok)
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(files, -1) {
		require.DirExists(t, "../../"+m[1])
	}
}
