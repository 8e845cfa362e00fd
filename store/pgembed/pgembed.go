//go:build unix

package pgembed

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// NoTCP as Config.Port leaves the server with its unix socket alone.
const NoTCP = -1

// Config says which server to run.
type Config struct {
	// DataDir is created when missing and kept after Stop.
	DataDir string
	// BinDir holds initdb and postgres. Empty looks on the PATH and where
	// packages put them, for the data directory's version or else the newest,
	// and fetches them into the user's cache if the machine has none.
	BinDir string
	// Port on 127.0.0.1. 0 picks a free one, NoTCP opens none.
	Port int
	// Params are server settings that override its configuration file.
	Params map[string]string
	// Log receives what the server writes to stderr; nil keeps only the tail.
	Log io.Writer
}

// Mode is how a server is stopped.
type Mode int

const (
	// Fast rolls back what runs and shuts down cleanly.
	Fast Mode = iota
	// Immediate stops as a crash would: the next start recovers.
	Immediate
)

const (
	// maxSocketPath is the smallest limit of a unix socket's path that the
	// supported systems have, less the terminating zero (macOS: 104).
	maxSocketPath = 103
	socketName    = ".s.PGSQL.5432"
	passwordFile  = "ncmp-inventory.password"
	readyPoll     = 10 * time.Millisecond
)

// Server is a running PostgreSQL. Its methods may be called from any
// goroutine.
type Server struct {
	cfg       Config
	bin       binaries
	as        *account
	socketDir string
	tempDir   string // holds the socket when the data directory's path is too long
	password  string

	mu  sync.Mutex
	run *process // nil when stopped
}

// process is one life of the postmaster.
type process struct {
	cmd  *exec.Cmd
	tail *tail
	done chan struct{} // closed when it ended, err is set before
	err  error
}

// Start creates the data directory if need be, starts a server on it and
// returns when it accepts connections.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s, err := prepare(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("starting PostgreSQL: %w", err)
	}
	if err := s.Restart(ctx, Fast); err != nil {
		return nil, errors.Join(err, s.removeTemp())
	}
	return s, nil
}

func prepare(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.DataDir == "" {
		return nil, errors.New("no data directory given")
	}
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	cfg.DataDir = dir
	s := &Server{cfg: cfg}
	major, err := dataVersion(dir)
	if err != nil {
		return nil, err
	}
	if s.as, err = accountFor(dir); err != nil {
		return nil, err
	}
	if err := s.as.reaches(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	if s.bin, err = s.programs(ctx, major); err != nil {
		return nil, err
	}
	if major == 0 {
		if err := s.initDataDir(ctx); err != nil {
			return nil, err
		}
	} else if major != s.bin.major {
		return nil, fmt.Errorf("data directory %s is of PostgreSQL %d, the programs in %s are of %d", dir, major, s.bin.dir, s.bin.major)
	}
	if cfg.Port != NoTCP {
		pw, err := os.ReadFile(filepath.Join(dir, passwordFile))
		if err != nil {
			return nil, fmt.Errorf("reading the password of a data directory: %w", err)
		}
		s.password = strings.TrimSpace(string(pw))
	}
	if cfg.Port == 0 {
		if s.cfg.Port, err = freePort(); err != nil {
			return nil, err
		}
	}
	return s, s.placeSocket()
}

func (s *Server) programs(ctx context.Context, major int) (binaries, error) {
	if s.cfg.BinDir != "" {
		return inspect(ctx, s.cfg.BinDir)
	}
	b, err := findBinaries(ctx, major)
	if errors.Is(err, errNoBinaries) {
		return fetchBinaries(ctx, s.as)
	}
	return b, err
}

// initDataDir runs initdb. It cleans up behind itself when interrupted, and
// refuses a directory that holds anything.
func (s *Server) initDataDir(ctx context.Context) error {
	// The directories above must let the server's user through.
	if err := os.MkdirAll(filepath.Dir(s.cfg.DataDir), 0o755); err != nil {
		return fmt.Errorf("making a data directory: %w", err)
	}
	if err := os.Mkdir(s.cfg.DataDir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("making a data directory: %w", err)
	}
	held, err := os.ReadDir(s.cfg.DataDir)
	if err != nil {
		return fmt.Errorf("looking into a data directory: %w", err)
	}
	if len(held) > 0 {
		return fmt.Errorf("%s holds files but no PostgreSQL data", s.cfg.DataDir)
	}
	if err := s.as.own(s.cfg.DataDir); err != nil {
		return fmt.Errorf("making a data directory: %w", err)
	}
	pw, err := s.writePassword()
	if err != nil {
		return fmt.Errorf("writing a password: %w", err)
	}
	defer func() { _ = os.Remove(pw) }()

	cmd := s.as.command(exec.CommandContext(ctx, filepath.Join(s.bin.dir, "initdb"),
		"--pgdata="+s.cfg.DataDir, "--username=postgres", "--pwfile="+pw,
		"--auth-local=trust", "--auth-host=scram-sha-256",
		"--encoding=UTF8", "--no-locale", "--no-sync"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Second
	// The signal at our death follows the thread, which must not end earlier.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, bytes.TrimSpace(out[max(0, len(out)-tailBytes):]))
	}
	b, err := os.ReadFile(pw)
	if err != nil {
		return fmt.Errorf("keeping the password: %w", err)
	}
	kept := filepath.Join(s.cfg.DataDir, passwordFile)
	if err := os.WriteFile(kept, b, 0o600); err != nil {
		return fmt.Errorf("keeping the password: %w", err)
	}
	return s.as.own(kept)
}

// writePassword puts a new password where initdb, as its own user, reads it.
func (s *Server) writePassword() (string, error) {
	f, err := os.CreateTemp("", "pgembed-password-")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(rand.Text() + "\n")
	err = errors.Join(err, f.Close(), s.as.own(f.Name()))
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// placeSocket puts the socket into the data directory, or, if that path is too
// long for one, into a new directory that goes with the server.
func (s *Server) placeSocket() error {
	s.socketDir = s.cfg.DataDir
	if len(filepath.Join(s.socketDir, socketName)) <= maxSocketPath {
		return nil
	}
	dir, err := os.MkdirTemp("/tmp", "pgembed-")
	if err != nil {
		return fmt.Errorf("making a directory for the socket: %w", err)
	}
	s.socketDir, s.tempDir = dir, dir
	return s.as.own(dir)
}

func (s *Server) removeTemp() error {
	if s.tempDir == "" {
		return nil
	}
	return os.RemoveAll(s.tempDir)
}

// URL is how to connect to a database of the server as its superuser. It holds
// a password if there is a TCP port.
func (s *Server) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database}
	q := url.Values{"sslmode": {"disable"}}
	if s.cfg.Port == NoTCP {
		q.Set("host", s.socketDir)
	} else {
		u.User = url.UserPassword("postgres", s.password)
		u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.cfg.Port))
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// Major is the server's major version.
func (s *Server) Major() int { return s.bin.major }

// PID is the process id of the postmaster, 0 when it does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.run == nil {
		return 0
	}
	return s.run.cmd.Process.Pid
}

// Stop shuts the server down fast, or at once when ctx ends, and waits for it.
// The data stays. Stopping a stopped server does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.stop(ctx, Fast), s.removeTemp())
}

// Restart stops the server in the given mode, if it runs, and starts it again
// under the same address.
func (s *Server) Restart(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.stop(ctx, mode); err != nil {
		return err
	}
	return s.start(ctx)
}

// Halt stops the server in the given mode and keeps its address, so that
// Restart can bring it back.
func (s *Server) Halt(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop(ctx, mode)
}

func (s *Server) stop(ctx context.Context, mode Mode) error {
	p := s.run
	if p == nil {
		return nil
	}
	s.run = nil
	sig := syscall.SIGINT
	if mode == Immediate {
		sig = syscall.SIGQUIT
	}
	// A server that is gone already cannot be signalled; its exit is in p.
	_ = p.cmd.Process.Signal(sig)
	select {
	case <-p.done:
	case <-ctx.Done():
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.done
	}
	var exit *exec.ExitError
	if mode == Immediate && errors.As(p.err, &exit) {
		return nil
	}
	if p.err != nil {
		return fmt.Errorf("stopping PostgreSQL: %w: %s", p.err, p.tail)
	}
	return nil
}

func (s *Server) start(ctx context.Context) error {
	args := []string{"-D", s.cfg.DataDir, "-k", s.socketDir}
	if s.cfg.Port == NoTCP {
		args = append(args, "-c", "listen_addresses=")
	} else {
		args = append(args, "-c", "listen_addresses=127.0.0.1", "-p", strconv.Itoa(s.cfg.Port))
	}
	for _, k := range slices.Sorted(maps.Keys(s.cfg.Params)) {
		args = append(args, "-c", k+"="+s.cfg.Params[k])
	}
	p := &process{tail: &tail{next: s.cfg.Log}, done: make(chan struct{})}
	p.cmd = s.as.command(exec.Command(filepath.Join(s.bin.dir, "postgres"), args...))
	p.cmd.Stderr = p.tail
	p.cmd.WaitDelay = 5 * time.Second // backends of a killed postmaster may hold stderr
	started := make(chan error)
	go p.live(started)
	if err := <-started; err != nil {
		return fmt.Errorf("starting PostgreSQL: %w", err)
	}
	s.run = p
	if err := s.awaitReady(ctx, p); err != nil {
		s.run = nil
		_ = p.cmd.Process.Signal(syscall.SIGQUIT)
		<-p.done
		return fmt.Errorf("starting PostgreSQL: %w: %s", err, p.tail)
	}
	return nil
}

// live starts the postmaster and waits for its end on one thread: the kernel
// shuts the server down when the thread that started it ends, and the Go
// runtime ends idle threads.
func (p *process) live(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
	close(p.done)
}

// awaitReady watches postmaster.pid. The file can be left over from an earlier
// server, so it counts only if it names our child. A standby is ready when it
// takes queries.
func (s *Server) awaitReady(ctx context.Context, p *process) error {
	pid := strconv.Itoa(p.cmd.Process.Pid)
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		b, _ := os.ReadFile(filepath.Join(s.cfg.DataDir, "postmaster.pid"))
		lines := strings.Split(string(b), "\n")
		if len(lines) > 7 && lines[0] == pid {
			if status := strings.TrimSpace(lines[7]); status == "ready" || status == "standby" {
				return nil
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("the server ended: %w", p.err)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("finding a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
