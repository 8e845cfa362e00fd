package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"ncmp-inventory/cmd/ncmp-inventory/config"
)

// The exit codes.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2 // usage or configuration
	exitWrong  = 3 // the command worked and found something wrong
)

// exitError is an error with an exit code of its own. A nil err exits without
// a word: the command has told what is to tell.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// app is what all commands share: the ends of the process, and where
// configuration comes from.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string

	file    string // --config
	flags   *pflag.FlagSet
	started bool // a command's own code was reached
}

// run is the program without its process. It returns the exit code when the
// command is done or ctx, which asks for a clean end, has been obeyed.
func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, environ: environ}
	root := newRoot(a)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitDone
	}
	if text := err.Error(); text != "" {
		for line := range strings.SplitSeq(text, "\n") {
			fmt.Fprintln(stderr, "ncmp-inventory: "+line)
		}
	}
	return a.exitCode(err)
}

func (a *app) exitCode(err error) int {
	var (
		exit *exitError
		conf *config.Error
	)
	switch {
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &conf), !a.started: // cobra refused the arguments
		return exitUsage
	}
	return exitFailed
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "ncmp-inventory",
		Short: "Event-driven inventory of CM handles",
		Long: `ncmp-inventory keeps the inventory of CM handles in PostgreSQL from events on
Kafka, and tells every change as an LCM event.

Configuration comes from flags, the environment (NCMP_INVENTORY_…) and a YAML
file, in this order. Every configuration key is a flag of every command, for
example --kafka.group; "ncmp-inventory config keys" lists them all.`,
		Version:           version(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRun:  func(*cobra.Command, []string) { a.started = true },
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	a.flags = root.PersistentFlags()
	a.flags.StringVar(&a.file, "config", "", "YAML file with configuration")
	for _, k := range config.Keys {
		a.flags.String(k.Name, k.Default, k.Doc)
		// All of them would bury the commands' own flags.
		switch k.Name {
		case "kafka.brokers", "database.url", "log.level":
		default:
			_ = a.flags.MarkHidden(k.Name)
		}
	}
	root.AddCommand(
		newWorkerCommand(a), newMigrateCommand(a), newConfigCommand(a),
		newRegisterCommand(a), newStateCommand(a), newWatchCommand(a),
		newGetCommand(a), newListCommand(a), newPositionsCommand(a), newVerifyCommand(a),
		newHistoryCommand(a), newDeadLettersCommand(a), newOutboxCommand(a),
		newDemoCommand(a), newBenchCommand(a),
	)
	refuseUnknownTopics(root)
	return root
}

// refuseUnknownTopics makes help about what there is not an error: cobra's own
// help command prints a line and succeeds.
func refuseUnknownTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() != "help" {
			continue
		}
		help.RunE = func(cmd *cobra.Command, args []string) error {
			if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
				return usage("there is no command %q", strings.Join(args, " "))
			}
			help.Run(cmd, args)
			return nil
		}
	}
}

// load reads the configuration and checks that the keys are set which the
// command needs and which have no default.
func (a *app) load(need ...string) (*config.Loaded, error) {
	in := config.Input{File: a.file, Environ: a.environ, Flags: map[string]string{}}
	a.flags.VisitAll(func(f *pflag.Flag) {
		if f.Changed && f.Name != "config" {
			in.Flags[f.Name] = f.Value.String()
		}
	})
	c, err := config.Load(in)
	if err != nil {
		return nil, err
	}
	return c, c.Require(need...)
}

// isTerminal reports whether a stream is read or written by a person.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// version is the module's version or the commit that was built.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v, rest := info.Main.Version, ""
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && !strings.Contains(v, s.Value[:min(12, len(s.Value))]) {
			rest = " " + s.Value[:min(12, len(s.Value))]
		}
	}
	return v + rest
}
