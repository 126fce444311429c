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
	failed  = 1 // the command failed: Redis, an unknown name, a refusal
	misused = 2 // the command line is wrong
	unwell  = 3 // check has found a warning or a fault
)

// program is one run of the command.
type program struct {
	out, errs io.Writer
	in        io.Reader
	terminal  bool // out is a terminal
	asks      bool // a person can answer questions
	colours   bool

	url    string
	asJSON bool
	yes    bool // skip questions
	limit  int  // rows

	client redis.UniversalClient
}

// defaultURL is the URL of Redis without -u and REDIS_URL.
const defaultURL = "redis://127.0.0.1:6379"

// patience is how long a whole command may take, except for watch, purge and serve.
const patience = 30 * time.Second

// statusError is an error with an exit status of its own.
type statusError struct {
	status int
	error
}

func (e statusError) Unwrap() error { return e.error }

// usagef returns an error about the command line.
func usagef(format string, args ...any) error {
	return statusError{misused, fmt.Errorf(format, args...)}
}

// errUnwell has no text: check has already printed its findings.
var errUnwell = statusError{unwell, errors.New("")}

// run runs a command line and returns the exit status.
func (p *program) run(ctx context.Context, args []string) int {
	p.errs = view.PrintableLines{W: p.errs}
	root := p.command()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if p.client != nil {
		_ = p.client.Close() // nothing can be lost
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

// explain returns one line that says what is wrong and what to do.
func (p *program) explain(err error) string {
	var unavailable *throttle.UnavailableError
	var url *connect.URLError
	text := strings.TrimSpace(strings.TrimPrefix(err.Error(), "throttle: "))
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case errors.As(err, &url):
		return text + "; give a URL with -u or REDIS_URL, such as redis://user:password@host:6379/0"
	case strings.Contains(text, "NOPERM") || strings.Contains(text, "can't run this command"):
		return text + "; docs/operations.md, “Permissions”, has the rules of a user who looks, and of one who changes"
	case errors.As(err, &unavailable) && unavailable.Failure != "timeout" && unavailable.Failure != "other":
		return text + "; docs/operations.md, “When Redis cannot decide”, says what to do"
	}
	return strings.ReplaceAll(text, "\n", " ")
}

// command returns the tree of commands.
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
	root.SetOut(p.out)
	root.SetErr(p.errs)
	root.SetIn(p.in)
	flags := root.PersistentFlags()
	flags.StringVarP(&p.url, "url", "u", "",
		"Redis, such as redis://host:6379/0, rediss://, redis-sentinel://, redis-cluster:// (default $REDIS_URL, else "+
			defaultURL+")")
	flags.BoolVar(&p.asJSON, "json", false, "print one JSON document")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see %s -h", err, cmd.CommandPath())
	})
	root.AddCommand(p.ls(), p.status(), p.lines(), p.job(), p.usage(), p.limits(), p.ramp(), p.pause(), p.resume(),
		p.mode(), p.forecast(), p.check(), p.changes(), p.watch(), p.serve(), p.purge())
	root.InitDefaultCompletionCmd("") // it writes to the root's output
	for _, cmd := range all(root) {
		if cmd.HasSubCommands() && !cmd.Runnable() {
			cmd.RunE = group
		}
		if cmd.Args != nil {
			cmd.Args = explained(cmd.Args)
		}
	}
	return root
}

// version returns the version of this program's module.
func version() string {
	if info, is := debug.ReadBuildInfo(); is && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// all returns a command and all commands below it.
func all(root *cobra.Command) []*cobra.Command {
	commands := []*cobra.Command{root}
	for _, cmd := range root.Commands() {
		commands = append(commands, all(cmd)...)
	}
	return commands
}

// explained adds the correct usage to an error about arguments.
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

// group runs a command that only has subcommands.
func group(cmd *cobra.Command, _ []string) error {
	return usagef("%s wants a command; see %s -h", cmd.CommandPath(), cmd.CommandPath())
}

// meant suggests the commands whose names resemble the given one.
func meant(cmd *cobra.Command, given string) string {
	cmd.SuggestionsMinimumDistance = 2 // letters
	names := cmd.SuggestionsFor(given)
	if len(names) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(names, " or ") + "?"
}

// open connects to Redis, and checks that it answers.
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

// now returns the present on Redis' clock, in the reader's zone. This machine's clock may differ.
func (p *program) now(ctx context.Context) (time.Time, error) {
	now, err := p.client.Time(ctx).Result()
	if err != nil {
		return now, fmt.Errorf("the time of Redis cannot be read: %w", err)
	}
	return now.Local(), nil
}

// address returns a URL without its secrets.
func address(url string) string {
	scheme, rest, is := strings.Cut(url, "://")
	if !is {
		return url[strings.LastIndexByte(url, '@')+1:]
	}
	rest, _, _ = strings.Cut(rest, "?")
	return scheme + "://" + rest[strings.LastIndexByte(rest, '@')+1:]
}

// attach connects to Redis and attaches to a throttle. If there is none of this name, the error lists those that exist.
func (p *program) attach(ctx context.Context, name string) (*inspect.Inspector, error) {
	if err := p.open(ctx); err != nil {
		return nil, err
	}
	th, err := inspect.Attach(ctx, name, p.client)
	var attach *inspect.AttachError
	var option *throttle.OptionError
	switch {
	case errors.As(err, &attach):
		return nil, p.unknown(ctx, attach)
	case errors.As(err, &option):
		return nil, usagef("throttle %q: %s", name, option.Reason)
	}
	return th, err
}

// unknown returns an error that lists the existing throttles.
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

// differing warns if the processes have different configurations.
func (p *program) differing(ctx context.Context, th *inspect.Inspector) error {
	processes, err := th.Processes(ctx)
	if err != nil {
		return err
	}
	alive, differing := view.Differing(processes)
	if differing > 0 {
		fmt.Fprintf(p.errs,
			"warning: %d of %d processes are configured differently from the newest, which is shown: %s; "+
				"asynq-throttle check %s says how they differ\n",
			differing, alive, processes[0], th.Name())
	}
	return nil
}

// scopeKey checks the names of a scope and a key; its error lists the existing scopes.
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

// print prints a result as JSON, or with text for people.
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

// confirmed asks a person at the terminal to confirm a change. The answer may come after ctx has ended.
func (p *program) confirmed(ctx context.Context, question string) error {
	if p.yes || !p.asks {
		return nil
	}
	fmt.Fprintf(p.errs, "%s [y/N] ", question)
	var answer string
	if _, err := fmt.Fscanln(p.in, &answer); err != nil || !strings.HasPrefix(strings.ToLower(answer), "y") {
		return errors.New("nothing was changed")
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("nothing was changed: the answer came more than %s after the start; give the command again",
			patience)
	}
	return nil
}

// limited bounds the time of a verb that ends by itself.
func limited(run func(cmd *cobra.Command, args []string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), patience)
		defer cancel()
		cmd.SetContext(ctx)
		err := run(cmd, args)
		late := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) // of ctx, or of a read
		if late && ctx.Err() != nil {
			return fmt.Errorf("this takes longer than %s: Redis is slow, or has very many keys or waiting jobs; name a scope "+
				"and a key if the verb takes them, or try again when Redis is less busy", patience)
		}
		return err
	}
}
