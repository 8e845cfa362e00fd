package chaos

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every test that the guarantees name is there.
func TestGuaranteesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..")
	doc, err := os.ReadFile(filepath.Join(root, "docs", "guarantees.md"))
	require.NoError(t, err)
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(string(doc), -1)
	require.Greater(t, len(named), 50)

	declared := map[string]bool{}
	tests := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Za-z0-9]+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || !regexp.MustCompile(`_test\.go$`).MatchString(path) {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range tests.FindAllStringSubmatch(string(text), -1) {
			declared[m[1]] = true
		}
		return err
	}))
	for _, m := range named {
		require.True(t, declared[m[1]], "%s is named and does not exist", m[1])
	}
}
