package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The severities of findings.
const (
	note    = "note"
	warning = "warning"
	fault   = "fault"
)

// Finding is one thing that Check found.
type Finding struct {
	// Severity is "note" (good to know, nothing is wrong), "warning" (does harm now or will later)
	// or "fault" (the throttle cannot decide until someone mends it).
	Severity string
	// What is the subject, short and stable: version, script, permission, command,
	// replica, replicas, eviction, memory, persistence, clock, client, info, processes or
	// margin.
	What string
	// Text describes the finding, Remedy what to do about it. Neither contains a user's key or a
	// password.
	Text, Remedy string
}

// String returns one line: the severity, the text and the remedy.
func (f Finding) String() string {
	return fmt.Sprintf("%s: %s; %s", f.Severity, f.Text, f.Remedy)
}

// CheckError is why Redis in its present state cannot decide for a throttle. Waiting does not help: an operator
// has to mend the Faults.
type CheckError struct {
	Throttle string    // the throttle's name
	Faults   []Finding // at least one
	// Missing are the rules that the Redis user lacks, as ACL SETUSER takes them: +hset,
	// +script|load, ~thr:{name}:*. Empty if no permission is missing.
	Missing []string
}

func (e *CheckError) Error() string {
	texts := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		texts[i] = f.Text + "; " + f.Remedy
	}
	return fmt.Sprintf("throttle: Redis cannot decide for throttle %s: %s", e.Throttle, strings.Join(texts, ". "))
}

// Check examines whether Redis, the Redis user and the client are fit for this throttle. A program
// may call it when it starts; decisions do not depend on it. Check loads all scripts, so that the
// first decisions need not do so. It calls each command that is used, in a way that leaves nothing behind,
// and reads INFO if the Redis user may.
//
// Faults that must stop the program are a *CheckError: a server older than Redis 6.2, a script that
// cannot be loaded, a user or a password that Redis does not know, a permission or a command that is missing for
// decisions, a replica instead of a primary. If Redis cannot be reached, the error is a *throttle.UnavailableError,
// whose text has the client's address, or the context's own error.
//
// The findings, which Check returns beside an error too, need not stop the program: an eviction policy;
// a permission that is missing for what processes publish and for the record of changes; memory or replicas that
// are missing now; a clock that differs by more than a second; settings of go-redis'
// Cluster client that make a recovery slow; live processes that are configured differently from
// this one or, for an attached Inspector, from the process that it was attached to; processes whose
// jobs began more than a throttle.Scope.Margin after their grants in the last hour; and notes, such as that
// INFO cannot be read, or that replicas follow without min-replicas-to-write.
//
// Check blocks for some fifteen round trips, each for throttle.Options.Timeout at most, and ends if the server does not
// answer one of the first twelve. The circuit breaker neither stops Check nor counts its failures.
func (t *Inspector) Check(ctx context.Context) ([]Finding, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("throttle: not asked: %w", err)
	}
	c := check{throttle: t, findings: t.checkClient()}
	err := c.load(ctx)
	if err == nil {
		err = c.probe(ctx)
	}
	if err == nil {
		c.publishing(ctx)
		c.processes(ctx)
	}
	if faulty := c.faulty(); faulty != nil {
		return c.findings, faulty
	}
	return c.findings, t.withAddress(err)
}

// check collects the findings of one Check.
type check struct {
	throttle    *Inspector
	findings    []Finding // notes and warnings
	faults      []Finding
	refused     []string // commands, in capitals
	missing     []string // ACL rules
	unpublished []string // ACL rules that decisions do not need
}

func (c *check) find(severity string, what, text, remedy string) {
	finding := Finding{Severity: severity, What: what, Text: text, Remedy: remedy}
	if severity == fault {
		c.faults = append(c.faults, finding)
		return
	}
	c.findings = append(c.findings, finding)
}

// findOnce adds a finding that several commands may cause.
func (c *check) findOnce(severity string, what, text, remedy string) {
	about := func(f Finding) bool { return f.What == what }
	if !slices.ContainsFunc(c.faults, about) && !slices.ContainsFunc(c.findings, about) {
		c.find(severity, what, text, remedy)
	}
}

// faulty returns a *CheckError if a fault must stop the program, else nil.
func (c *check) faulty() error {
	if len(c.refused) > 0 {
		c.find(fault, "permission", "the user may not call "+strings.Join(c.refused, ", "),
			"allow "+strings.Join(c.missing, " "))
	}
	if len(c.faults) == 0 {
		return nil
	}
	return &CheckError{Throttle: c.throttle.name, Faults: c.faults, Missing: c.missing}
}

// load makes all scripts known to Redis.
func (c *check) load(ctx context.Context) error {
	var failed error
	c.throttle.in.Load(ctx, func(script string, err error) bool {
		switch {
		case err == nil:
			return true
		case c.blames("SCRIPT LOAD", err):
			return false // the other scripts would fail in the same way
		case strings.Contains(cause(err), "rror compiling script"):
			c.find(fault, "script", "the server cannot read the script "+script+": "+cause(err),
				"use Redis 6.2 or newer, or Valkey")
			return true
		}
		failed = err
		return false
	})
	return failed
}

// blames reports whether the answer to a command blames the user, the password or the server, and
// adds the finding.
func (c *check) blames(command string, err error) bool {
	text := cause(err)
	switch {
	// A server that wants a password answers a long request without one with the last text.
	case strings.Contains(text, "NOAUTH"), strings.Contains(text, "WRONGPASS"), strings.Contains(text, "unauthenticated"):
		c.findOnce(fault, "permission", "Redis does not know the client's user, or its password",
			"give the client the right ones")
	case refusesKey(text):
		c.refuseKeys()
	case refusesCommand(text):
		// A missing script is loaded, so the error may be about another command.
		if strings.Contains(text, "'script") {
			command = "SCRIPT LOAD"
		}
		c.refuse(command)
	case strings.Contains(text, "unknown command"):
		c.findOnce(fault, "command", lacks(command, text), remedyOfLack)
	default:
		return false
	}
	return true
}

// lacks returns the text for a command that the server does not have, or has in another form.
func lacks(command, text string) string { return "the server does not run " + command + ": " + text }

const remedyOfLack = "use Redis 6.2 or newer, or Valkey, without renamed commands"

// cause returns the text of the client's error.
func cause(err error) string {
	var unavailable *throttle.UnavailableError
	if errors.As(err, &unavailable) {
		return unavailable.Err.Error()
	}
	return err.Error()
}

// refusesCommand and refusesKey recognise the errors of Redis 6.2 to 8 and of Valkey, both to a client and to
// a script.
func refusesCommand(text string) bool {
	return strings.Contains(text, "permissions to run") || strings.Contains(text, "can't run this command")
}

func refusesKey(text string) bool {
	return strings.Contains(text, "ermissions to access") ||
		strings.Contains(text, "can't access at least one of the keys")
}

func (c *check) refuse(command string) {
	if !slices.Contains(c.refused, command) {
		c.refused = append(c.refused, command)
		c.missing = append(c.missing, "+"+strings.ReplaceAll(strings.ToLower(command), " ", "|"))
	}
}

func (c *check) refuseKeys() {
	pattern := "~thr:{" + c.throttle.name + "}:*"
	if !slices.Contains(c.missing, pattern) {
		c.missing = append(c.missing, pattern)
		c.find(fault, "permission", "the user may not use all of the throttle's keys, which begin with "+
			c.throttle.prefix, "allow "+pattern)
	}
}

// probe runs the script check, which describes the server and lists the commands that the server refuses.
func (c *check) probe(ctx context.Context) error {
	t, began := c.throttle, time.Now()
	reply, err := t.in.Run(ctx, "check", nil)
	took := time.Since(began)
	switch {
	case err != nil && c.blames("EVALSHA", err):
		return nil
	case err != nil:
		return err
	}
	return c.read(wire.Array(reply), began.Add(took/2), took/2)
}

// read reads the answer of the script check, given at about an instant: Redis' clock, why INFO cannot be read,
// four sections of INFO, and the name and error of each command that failed.
func (c *check) read(v *wire.Values, at time.Time, uncertainty time.Duration) error {
	now, unread := wire.Instant(v.Natural()), v.Text()
	info := fieldsOf(v.Text() + "\n" + v.Text() + "\n" + v.Text() + "\n" + v.Text())
	for v.More() {
		c.failed(v.Text(), v.Text())
	}
	if v.Err() != nil {
		return badReply("check")
	}
	if !now.IsZero() {
		c.clock(now.Sub(at), uncertainty)
	}
	c.server(unread, info)
	return nil
}

// failed adds a finding for a command of the scripts that failed.
func (c *check) failed(command, text string) {
	is := func(prefix string) bool { return strings.Contains(text, prefix+" ") }
	switch {
	case refusesCommand(text) && command == "LPUSH":
		c.unpublished = append(c.unpublished, "+lpush")
	case refusesCommand(text):
		c.refuse(command)
	case refusesKey(text):
		c.refuseKeys()
	case is("READONLY"):
		c.replica()
	case is("NOREPLICAS"):
		c.findOnce(warning, "replicas",
			"Redis takes no writes, since fewer replicas than min-replicas-to-write follow it: nothing is decided until they do",
			"bring the replicas back, or lower min-replicas-to-write")
	case is("OOM"):
		c.findOnce(warning, "memory", "Redis has no memory for writes: nothing is decided until it has", "raise maxmemory")
	case is("MISCONF"):
		c.findOnce(warning, "persistence",
			"Redis takes no writes, since it cannot save its data: nothing is decided until it can",
			"look at its log and its disk")
	default:
		c.find(fault, "command", lacks(command, text), remedyOfLack)
	}
}

func (c *check) replica() {
	c.findOnce(fault, "replica", "this server is a replica, and the scripts write",
		"give the client the primary's address, or use go-redis' failover or Cluster client")
}

// skewed is how far two clocks must differ for a warning.
const skewed = time.Second

// clock judges how far Redis' clock is ahead of the local one, give or take an uncertainty.
func (c *check) clock(ahead, uncertainty time.Duration) {
	if ahead.Abs()-uncertainty <= skewed {
		return
	}
	where := "ahead of"
	if ahead < 0 {
		where = "behind"
	}
	c.find(warning, "clock",
		fmt.Sprintf(
			"Redis' clock is %s %s this machine's, give or take %s: the limits hold all the same, but queues such "+
				"as asynq go by this machine's",
			ahead.Abs().Round(time.Millisecond), where, uncertainty.Round(time.Microsecond)), "let both keep time by NTP")
}

// server judges the fields of INFO.
func (c *check) server(unread string, info map[string]string) {
	version, policy := info["redis_version"], info["maxmemory_policy"]
	if version == "" || policy == "" {
		text, remedy := "the server does not describe itself in INFO",
			"see to it yourself that it is Redis 6.2 or newer, or Valkey, a primary, with maxmemory-policy noeviction"
		if refusesCommand(unread) {
			text,
				remedy = "the user may not read INFO, so that version, role, eviction policy and persistence are "+
				"not known", "allow +info"
		}
		c.find(note, "info", text, remedy)
	}
	if version != "" && info["valkey_version"] == "" && older(version) {
		c.find(fault, "version", "Redis "+version+" is older than 6.2", "use Redis 6.2 or newer, or Valkey")
	}
	if policy != "" && policy != "noeviction" {
		if info["maxmemory"] == "0" {
			c.find(note, "eviction", "maxmemory-policy is "+policy+", which does no harm as long as maxmemory is 0",
				"set maxmemory-policy to noeviction")
		} else {
			c.find(warning, "eviction", "maxmemory-policy is "+policy+
				": short of memory, Redis may evict what was used of the limits", "set maxmemory-policy to noeviction")
		}
	}
	if info["role"] == "slave" {
		c.replica()
	}
	if info["aof_enabled"] == "0" {
		c.findOnce(note, "persistence",
			"appendonly is off: a restart of Redis forgets what was used and booked since its last snapshot",
			"set appendonly to yes if that must not be")
	}
	// INFO has the second field only where min-replicas-to-write and min-replicas-max-lag are set.
	_, bounded := info["min_slaves_good_slaves"]
	if replicas := info["connected_slaves"]; !bounded && replicas != "" && replicas != "0" {
		c.findOnce(note, "replicas",
			"replicas follow, and min-replicas-to-write is 0: a failover may forget whatever its replica had not received",
			"set min-replicas-to-write to 1, and min-replicas-max-lag to the seconds that may be forgotten")
	}
}

// publishing warns of rules that are missing for what only publishing and the record of changes need: a transaction,
// and LPUSH in it. It begins no transaction that the user may not end, since the connection would stay in it.
func (c *check) publishing(ctx context.Context) {
	missing := c.unpublished
	if c.refuses(ctx, "EXEC") { // else it only says that no transaction has begun
		missing = append(missing, "+multi", "+exec")
	} else if c.refuses(ctx, "MULTI", "EXEC") {
		missing = append(missing, "+multi")
	}
	if len(missing) > 0 {
		c.find(warning, "permission", "the user may not call "+
			strings.ToUpper(strings.ReplaceAll(strings.Join(missing, ", "), "+", ""))+
			": changes of limits, modes and pauses take effect, and are not recorded, or what processes publish is missing",
			"allow "+strings.Join(missing, " "))
	}
}

// refuses sends commands together, and reports whether the first one is refused.
func (c *check) refuses(ctx context.Context, commands ...string) bool {
	is, _ := command(ctx, c.throttle, func(ctx context.Context, client redis.Cmdable) (bool, error) {
		p := client.Pipeline()
		for _, name := range commands {
			p.Do(ctx, name)
		}
		tried, err := p.Exec(ctx)
		return len(tried) > 0 && err != nil && tried[0].Err() != nil && refusesCommand(tried[0].Err().Error()), nil
	})
	return is
}

// processes compares the configurations of the live processes with that of the Inspector, and judges how late they
// begin their jobs.
func (c *check) processes(ctx context.Context) {
	all, err := c.throttle.Processes(ctx)
	if err != nil {
		if text := cause(err); refusesKey(text) || refusesCommand(text) {
			c.find(note, "processes", "the user may not read how the processes are configured",
				"allow ~"+"thr:{"+c.throttle.name+"}:*")
		}
		return // the client only runs scripts, or the processes cannot be read this time
	}
	self := c.throttle.in.Process()
	for _, p := range all {
		if p.Alive {
			c.margins(p)
		}
		what := self.Differences(p)
		if !p.Alive || len(what) == 0 {
			continue
		}
		c.find(warning, "processes", fmt.Sprintf("%s is configured differently: here %s", p, strings.Join(what, "; ")),
			"give all processes of the throttle the same configuration; during a rollout this passes")
		if len(c.findings) >= mostProcesses {
			return
		}
	}
}

// recently is how long a job that began later than a margin causes a warning.
const recently = time.Hour

// margins judges how long after their grants a process begins its jobs.
func (c *check) margins(p throttle.Process) {
	for _, s := range p.Scopes {
		delay := p.Delays[s.Name]
		if delay.Late == 0 || p.Seen.Sub(delay.LastLate) > recently {
			continue
		}
		text := fmt.Sprintf(
			"%s began %d of %d jobs of scope %s later than its margin of %s after their grants, the latest after %s: "+
				"a strict upstream may have counted more than the limit",
			p, delay.Late, delay.Started, s.Name, wire.Duration(s.Margin),
			wire.Duration(delay.Longest.Round(time.Millisecond)))
		c.find(warning, "margin", text, "raise Scope.Margin, or see why jobs begin late (throttle_start_lateness_seconds)")
	}
}

// mostProcesses is how many findings are enough: after so many, Check looks at no further process.
const mostProcesses = 20

// fieldsOf reads lines such as "redis_version:7.0.15".
func fieldsOf(info string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, value, is := strings.Cut(strings.TrimSpace(line), ":"); is {
			fields[name] = value
		}
	}
	return fields
}

// older reports whether a version is below 6.2; false for a text that is no version.
func older(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	major, err := strconv.Atoi(parts[0])
	if err != nil || len(parts) < 2 {
		return false
	}
	minor, err := strconv.Atoi(parts[1])
	return err == nil && (major < 6 || major == 6 && minor < 2)
}
