package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestStepWritesWhatCPSStores(t *testing.T) {
	t.Parallel()
	require.Equal(t, "dmi-registry", Step("dmi-registry"))
	require.Equal(t, "books[@title='I''m escaping']", Step("books", Key{"title", "I'm escaping"}))
	require.Equal(t, "addresses[@house-number='2' and @street='Main Street']",
		Step("addresses", Key{"street", "Main Street"}, Key{"house-number", "2"}))
	require.Equal(t, "l[@key1='b' and @key='a']", Step("l", Key{"key", "a"}, Key{"key1", "b"}),
		"finished conditions are sorted, not names")
}

func TestNormalizeXPath(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                               "",
		"/":                              "",
		"/a/b":                           "/a/b",
		"/a/b/":                          "/a/b",
		`/a[@k="it's"]`:                  "/a[@k='it''s']",
		`/a[@k='say "x"']`:               `/a[@k='say "x"']`,
		`/a[ @z = '1' and @b="2" ]/c`:    "/a[@b='2' and @z='1']/c",
		"/a[@k='x]/y[@z=']/b":            "/a[@k='x]/y[@z=']/b",
		"/a[@k='100%_']/b":               "/a[@k='100%_']/b",
		`/a[@k="say ""x"" now"]/lock`:    `/a[@k='say "x" now']/lock`,
		"/dmi-registry/cm-handles":       "/dmi-registry/cm-handles",
		"/a[@k='']/b[@a='''']":           "/a[@k='']/b[@a='''']",
		"/a[@k='1' and @l='2']/b[@m='']": "/a[@k='1' and @l='2']/b[@m='']",
	} {
		got, err := NormalizeXPath(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got)
	}
	for _, bad := range []string{"a", "//a", "/a//b", "/a[", "/a[@k]", "/a[@k=]", "/a[@k='x]", "/a[@k='x'", "/a[@k='x' or @l='y']", "/a[@='x']", "/a b", "/a[@k='x']b", "/a[text()='x']"} {
		_, err := NormalizeXPath(bad)
		require.ErrorIs(t, err, ErrBadXPath, bad)
	}
}

func TestAnyKeyValueSurvivesAnXPath(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.String().Draw(t, "value")
		x := "/top/" + Step("list", Key{"id", value}) + "/state"
		steps, err := parseXPath(x)
		require.NoError(t, err)
		require.Len(t, steps, 3)
		require.Equal(t, []Key{{"id", value}}, steps[1].keys)
		n, err := NormalizeXPath(x)
		require.NoError(t, err)
		require.Equal(t, x, n)
	})
}

func TestTargetKnowsItsParent(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]target{
		"/":                      {},
		"/a":                     {xpath: "/a", prefix: "/a[@"},
		"/a[@k='/']":             {xpath: "/a[@k='/']"},
		"/a[@k='x/y']/b":         {xpath: "/a[@k='x/y']/b", parent: "/a[@k='x/y']", prefix: "/a[@k='x/y']/b[@"},
		"/a/b[@k='1']/c[@k='2']": {xpath: "/a/b[@k='1']/c[@k='2']", parent: "/a/b[@k='1']"},
	} {
		got, err := parseTarget(in)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
