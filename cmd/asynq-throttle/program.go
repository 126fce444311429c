package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/connect"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The exit statuses.
const (
	failed  = 1 // it could not be done: Redis, an unknown name, a refusal
	misused = 2 // the command line is wrong
	unwell  = 3 // check has found a warning or a fault
)

// program is one run of the command.
type program struct {
	out, errs io.Writer
	in        io.Reader
	terminal  bool // out is one
	asks      bool // somebody can be asked
	colours   bool

	url    string
	asJSON bool
	yes    bool // no questions
	limit  int  // rows

	client redis.UniversalClient
}

// defaultURL is where Redis is if nothing says so.
const defaultURL = "redis://127.0.0.1:6379"

// patience is how long everything may take together, but for watch and purge.
const patience = 30 * time.Second

// statusError is an error with an exit status of its own.
type statusError struct {
	status int
	error
}

func (e statusError) Unwrap() error { return e.error }

// usagef is about the command line.
func usagef(format string, args ...any) error {
	return statusError{misused, fmt.Errorf(format, args...)}
}

// errUnwell has been told already.
var errUnwell = statusError{unwell, errors.New("")}

// run is the whole of a run: it returns the exit status.
func (p *program) run(ctx context.Context, args []string) int {
	p.errs = view.PrintableLines{W: p.errs}
	root := p.command()
	root.SetArgs(args)
	root.SetOut(p.out)
	root.SetErr(p.errs)
	root.SetIn(p.in)
	err := root.ExecuteContext(ctx)
	if p.client != nil {
		_ = p.client.Close() // nothing is to be lost
	}
	if err == nil {
		return 0
	}
	if text := p.explain(err); text != "" {
		fmt.Fprintf(p.errs, "asynq-throttle: %s\n", text)
	}
	var of statusError
	if errors.As(err, &of) {
		return of.status
	}
	return failed
}

// explain is one line that says what is wrong and what to do.
func (p *program) explain(err error) string {
	var unavailable *throttle.UnavailableError
	var url *connect.URLError
	text := strings.TrimSpace(strings.TrimPrefix(err.Error(), "throttle: "))
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.As(err, &url):
		return text + "; give a URL with -u or REDIS_URL, such as redis://user:password@host:6379/0"
	case errors.As(err, &unavailable) && unavailable.Failure != "timeout" && unavailable.Failure != "other":
		return text + "; docs/operations.md, “When Redis cannot decide”, says what to do"
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// command is the whole tree.
func (p *program) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "asynq-throttle",
		Short: "Look at the throttles of asynq-throttle, and control them",
		Long: "Look at the throttles of asynq-throttle, and control them.\nThe documentation is " +
			"docs/command.md; answers for the person on call: docs/operations.md.",
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVarP(&p.url, "url", "u", "",
		"Redis, such as redis://host:6379/0, rediss://, redis-sentinel://, redis-cluster:// (default $REDIS_URL, else "+
			defaultURL+")")
	flags.BoolVar(&p.asJSON, "json", false, "print one JSON document")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s -h", err, cmd.CommandPath())
	})
	root.AddCommand(p.ls(), p.status(), p.lines(), p.job(), p.usage(), p.limits(), p.pause(), p.resume(), p.mode(),
		p.forecast(), p.check(), p.changes(), p.watch(), p.serve(), p.purge())
	for _, cmd := range all(root) {
		if cmd.Args != nil {
			cmd.Args = explained(cmd.Args)
		}
	}
	return root
}

// version is that of this program's module.
func version() string {
	if info, is := debug.ReadBuildInfo(); is && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// all are the commands below one.
func all(root *cobra.Command) []*cobra.Command {
	commands := []*cobra.Command{root}
	for _, cmd := range root.Commands() {
		commands = append(commands, all(cmd)...)
	}
	return commands
}

// explained has wrong arguments say how they are to be.
func explained(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, given []string) error {
		err := args(cmd, given)
		switch {
		case err == nil:
			return nil
		case cmd.HasSubCommands() && len(given) > 0:
			return usagef("unknown command %q of %s%s; see %s -h", given[0], cmd.CommandPath(),
				meant(cmd, given[0]), cmd.CommandPath())
		case len(given) == 0 && strings.Contains(cmd.Use, " THROTTLE"):
			return usagef("which throttle? It is %q, and asynq-throttle ls lists them; see %s -h", cmd.UseLine(),
				cmd.CommandPath())
		}
		return usagef("%s: it is %q; see %s -h", err, cmd.UseLine(), cmd.CommandPath())
	}
}

// meant asks for the commands whose names are like what was given.
func meant(cmd *cobra.Command, given string) string {
	cmd.SuggestionsMinimumDistance = 2 // letters
	names := cmd.SuggestionsFor(given)
	if len(names) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(names, " or ") + "?"
}

// open opens Redis, and finds out whether anybody answers.
func (p *program) open(ctx context.Context) error {
	url := cmp.Or(p.url, os.Getenv("REDIS_URL"), defaultURL)
	client, err := connect.Open(url)
	if err != nil {
		return statusError{misused, err}
	}
	p.client = client
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := client.Ping(ctx).Err(); err != nil {
		cause := err.Error()
		if errors.Is(err, context.DeadlineExceeded) {
			cause = "no answer within 3s"
		}
		//nolint:staticcheck // Redis is a name
		return fmt.Errorf("Redis at %s does not answer: %s; is it up, and is this its URL (-u or REDIS_URL)?",
			address(url), cause)
	}
	return nil
}

// address is a URL without what is secret.
func address(url string) string {
	scheme, rest, is := strings.Cut(url, "://")
	if !is {
		return url[strings.LastIndexByte(url, '@')+1:]
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
}

// attach opens a throttle, and says on stderr where its processes differ.
func (p *program) attach(ctx context.Context, name string) (*inspect.Inspector, error) {
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	th, err := inspect.Attach(ctx, name, p.client)
	var attach *inspect.AttachError
	if errors.As(err, &attach) {
		return nil, p.unknown(ctx, attach)
	}
	return th, err
}

// unknown says which throttles there are.
func (p *program) unknown(ctx context.Context, attach *inspect.AttachError) error {
	names, err := inspect.List(ctx, p.client)
	switch {
	case err != nil || slices.Contains(names, attach.Throttle):
		return attach
	case len(names) == 0:
		return fmt.Errorf(
			"%w; no throttle has: is this the Redis of the throttle (-u or REDIS_URL), and does one of its "+
				"programs run?", attach)
	}
	return fmt.Errorf("%w; there are: %s", attach, strings.Join(names, ", "))
}

// differing warns where the processes are not configured alike.
func (p *program) differing(ctx context.Context, th *inspect.Inspector) error {
	processes, err := th.Processes(ctx)
	if err != nil {
		return err
	}
	n, alive := 0, 0
	for _, other := range processes {
		if other.Alive {
			alive++
		}
		if other.Alive && len(processes[0].Differences(other)) > 0 {
			n++
		}
	}
	if n > 0 {
		fmt.Fprintf(p.errs,
			"warning: %d of %d processes are configured differently from what is shown, that of the newest: %s; "+
				"asynq-throttle check %s says in what\n",
			n, alive, processes[0], th.Name())
	}
	return nil
}

// scopeKey checks the names of a scope and a key, and says which scopes there are.
func (p *program) scopeKey(ctx context.Context, th *inspect.Inspector, scope, key string) error {
	processes, err := th.Processes(ctx)
	if err != nil || len(processes) == 0 {
		return err
	}
	var names []string
	for _, s := range processes[0].Scopes {
		if s.Name == scope && (scope != throttle.Global || key == "") {
			return nil
		}
		names = append(names, s.Name)
	}
	if scope == throttle.Global && slices.Contains(names, scope) {
		return usagef("the scope global has no keys: leave %q out", key)
	}
	return usagef("throttle %s has no scope %q; there are: %s", th.Name(), scope, strings.Join(names, ", "))
}

// print prints a result: as JSON, or as text does.
func (p *program) print(result any, text func(*page)) error {
	var b strings.Builder
	if p.asJSON {
		encoder := json.NewEncoder(&b)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(result); err != nil {
			return err
		}
		_, err := io.WriteString(p.out, view.PrintableJSON(b.String()))
		return err
	}
	text(&page{w: &b, colours: p.colours})
	_, err := io.WriteString(p.out, b.String())
	return err
}

// confirmed asks whether a change is meant, where somebody can be asked.
func (p *program) confirmed(question string) error {
	if p.yes || !p.asks {
		return nil
	}
	fmt.Fprintf(p.errs, "%s [y/N] ", question)
	var answer string
	if _, err := fmt.Fscanln(p.in, &answer); err != nil || !strings.HasPrefix(strings.ToLower(answer), "y") {
		return errors.New("nothing was changed")
	}
	return nil
}

// limited is the context of a verb that does not go on by itself.
func limited(run func(cmd *cobra.Command, args []string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), patience)
		defer cancel()
		cmd.SetContext(ctx)
		return run(cmd, args)
	}
}
