//go:build unix

package pgembed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// layouts are where packages put the server's programs, by system: Debian,
// RPM, Homebrew on Apple and Intel machines, FreeBSD and source builds.
var layouts = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/usr/local/bin",
	"/usr/local/pgsql/bin",
}

// fetchVersion is what is fetched on a machine without PostgreSQL.
const fetchVersion = embeddedpostgres.V17

// binaries is a directory that holds initdb and postgres of one version.
type binaries struct {
	dir   string
	major int
}

// findBinaries picks the programs to run a data directory of the given major
// version with, or the newest ones if major is 0.
func findBinaries(ctx context.Context, major int) (binaries, error) {
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		// A link on the PATH can point into a package's own directory.
		if target, err := filepath.EvalSymlinks(p); err == nil {
			p = target
		}
		dirs = append(dirs, filepath.Dir(p))
	}
	for _, l := range layouts {
		m, _ := filepath.Glob(l) // the patterns are constants and well formed
		dirs = append(dirs, m...)
	}
	var found []binaries
	for _, d := range dirs {
		if b, err := inspect(ctx, d); err == nil && (major == 0 || b.major == major) {
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		return binaries{}, errNoBinaries
	}
	return slices.MaxFunc(found, func(a, b binaries) int { return a.major - b.major }), nil
}

var (
	errNoBinaries = errors.New("no PostgreSQL server programs found")
	versionText   = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)
)

// inspect asks the programs in dir for their version.
func inspect(ctx context.Context, dir string) (binaries, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return binaries{}, err
	}
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return binaries{}, fmt.Errorf("asking %s for its version: %w", filepath.Join(dir, "postgres"), err)
	}
	m := versionText.FindSubmatch(out)
	if m == nil {
		return binaries{}, fmt.Errorf("%s: unknown version %q", filepath.Join(dir, "postgres"), bytes.TrimSpace(out))
	}
	major, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return binaries{}, fmt.Errorf("%s: %w", filepath.Join(dir, "postgres"), err)
	}
	return binaries{dir: dir, major: major}, nil
}

// fetchBinaries unpacks the server's programs below a cache directory that the
// server's user can reach, once; later calls find them there.
func fetchBinaries(ctx context.Context, as *account) (binaries, error) {
	cache, err := cacheDir(as)
	if err != nil {
		return binaries{}, err
	}
	home := filepath.Join(cache, string(fetchVersion)+"-"+runtime.GOARCH)
	if b, err := inspect(ctx, filepath.Join(home, "bin")); err == nil {
		return b, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return binaries{}, fmt.Errorf("making room for PostgreSQL's programs: %w", err)
	}
	// The library deletes what lies at its runtime and data paths, so it gets
	// paths that hold nothing.
	scratch, err := os.MkdirTemp("", "pgembed-fetch-")
	if err != nil {
		return binaries{}, fmt.Errorf("fetching PostgreSQL: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	port, err := freePort()
	if err != nil {
		return binaries{}, fmt.Errorf("fetching PostgreSQL: %w", err)
	}
	fetcher := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(fetchVersion).
		Port(uint32(port)).
		CachePath(filepath.Join(cache, "archives")).
		BinariesPath(home).
		RuntimePath(filepath.Join(scratch, "runtime")).
		DataPath(filepath.Join(scratch, "data")).
		Logger(io.Discard))
	// As root its own start fails after the programs were unpacked; what
	// counts is whether they are there.
	startErr := fetcher.Start()
	if startErr == nil {
		if err := fetcher.Stop(); err != nil {
			return binaries{}, fmt.Errorf("stopping the server that came with PostgreSQL's programs: %w", err)
		}
	}
	b, err := inspect(ctx, filepath.Join(home, "bin"))
	if err != nil {
		return binaries{}, fmt.Errorf("fetching PostgreSQL: %w", errors.Join(startErr, err))
	}
	return b, nil
}

// cacheDir is the user's own cache unless the server, running as another
// user, could not reach it there (root's home is closed to others).
func cacheDir(as *account) (string, error) {
	const name = "ncmp-inventory/postgresql"
	user, err := os.UserCacheDir()
	if err == nil && as.reaches(user) == nil {
		return filepath.Join(user, name), nil
	}
	if as != nil {
		return filepath.Join("/var/cache", name), nil
	}
	if err == nil {
		err = as.reaches(user)
	}
	return "", fmt.Errorf("finding a cache directory for PostgreSQL's programs: %w", err)
}

// dataVersion is the major version of a data directory, 0 if it holds none.
func dataVersion(dir string) (int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading the version of data directory %s: %w", dir, err)
	}
	// Before 10 the major version had two parts, "9.6".
	text, _, _ := strings.Cut(strings.TrimSpace(string(b)), ".")
	v, err := strconv.Atoi(text)
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("data directory %s has an unknown version %q", dir, b)
	}
	return v, nil
}
