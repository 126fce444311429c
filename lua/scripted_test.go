package lua_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/lua"
)

// scripted asks the scripts what line.Line is asked, and writes their answers as texts.
type scripted struct {
	client   *redis.Client
	prefix   string
	settings line.Settings
	asking   int
	steps    int // that one call takes; 0: many
}

// costsText is one number if all are the same, as package throttle writes them.
func costsText(costs []int64) string {
	if slices.Max(costs) == slices.Min(costs) {
		return strconv.FormatInt(costs[0], 10)
	}
	parts := make([]string, len(costs))
	for i, c := range costs {
		parts[i] = strconv.FormatInt(c, 10)
	}
	return strings.Join(parts, ",")
}

func (s *scripted) run(script string, now int64, args ...any) (any, error) {
	names := make([]string, 0, len(s.settings.Scopes))
	for name := range s.settings.Scopes {
		names = append(names, name)
	}
	sort.Strings(names)
	scopes := ""
	for _, name := range names {
		scope := s.settings.Scopes[name]
		scopes += name + "=" + string(scope.Mode) + ":" + line.LimitsText(scope.Limits) + ";"
	}
	header := []any{now, fmt.Sprintf("%d %d %d %d %d", s.settings.Lookahead, s.settings.Grace, 30*24*3600*1000,
		max(1, s.settings.Lower), cmp.Or(s.steps, 8000)), scopes}
	return s.client.Eval(context.Background(), script, []string{s.prefix + "control"}, append(header, args...)...).Result()
}

// reserve returns a line for each job.
func (s *scripted) reserve(now int64, jobs []line.Job) (int64, []string, error) {
	s.asking++
	args := []any{"me", s.asking}
	for _, j := range jobs {
		plan := 0
		if j.Plan {
			plan = 1
		}
		args = append(args, j.ID, j.Lane, fmt.Sprintf("%s %d %d %d %d", costsText(j.Costs), plan, j.MaxWait,
			j.Latest, j.Share))
	}
	reply, err := s.run(lua.Reserve, now, args...)
	if err != nil {
		return 0, nil, err
	}
	lines := strings.Split(reply.(string), "\n")
	_, next, _ := strings.Cut(lines[0], " ")
	n, err := strconv.ParseInt(next, 10, 64)
	return n, lines[1:], err
}

func answerText(a line.Answer) string {
	switch a.Outcome {
	case line.Granted:
		text := fmt.Sprintf("1 %d %d", a.Start, a.Lease)
		if len(a.Uncharged) > 0 {
			text += " !" + strings.Join(a.Uncharged, ",")
		}
		if a.Shadow != nil {
			text += fmt.Sprintf(" %s %d", heldText(a.Shadow), a.Until)
		}
		return text
	case line.Waiting:
		held := " - 0 0"
		if a.Held != nil {
			held = unitsText(a.Held)
		}
		return fmt.Sprintf("3 %d%s %d %d", a.Start, held, a.Ahead, a.Flows)
	case line.TooHeavy:
		return fmt.Sprintf("5 %s %c", heldText(a.Held), a.Held.Origin)
	}
	text := fmt.Sprintf("%d %d", a.Outcome, a.Start)
	if a.Held != nil {
		text += unitsText(a.Held)
	}
	return text
}

func heldText(h *line.Held) string {
	if h.Limit == nil {
		return h.Key + "/p"
	}
	return fmt.Sprintf("%s/%s", h.Key, h.Limit)
}

func unitsText(h *line.Held) string { return fmt.Sprintf(" %s %d %d", heldText(h), h.Used, h.Booked) }

func texts(reply any) []string {
	var all []string
	for _, v := range reply.([]any) {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// pull tells what a pull did, and the check at which it ended since its steps were taken, 0 if they were not.
func (s *scripted) pull(now int64, bookings, looks, brings int, ended ...any) (pulled []string, ends int, err error) {
	timed := 0
	if s.settings.Timed {
		timed = 1
	}
	reply,
		err := s.run(lua.Pull, now, append([]any{fmt.Sprintf("%d %d %d %d", bookings, looks, brings, timed)}, ended...)...)
	if err != nil {
		return nil, 0, err
	}
	all := texts(reply)[1:]
	ends, err = strconv.Atoi(all[3])
	return slices.Delete(all, 3, 4), ends, err
}

func pulledText(p line.Pulled) []string {
	all := []string{strconv.FormatInt(p.Next, 10), strconv.Itoa(len(p.Booked)), ""}
	for _, list := range [][]line.Told{p.Booked, p.Overdue} {
		for _, told := range list {
			all = append(all, told.ID, strconv.FormatInt(told.Slot, 10), told.Lane)
		}
	}
	return all
}

func (s *scripted) leave(now int64, ids []string) ([]string, error) {
	var args []any
	for _, id := range ids {
		args = append(args, id, "", "")
	}
	reply, err := s.run(lua.Leave, now, args...)
	if err != nil {
		return nil, err
	}
	return texts(reply)[1:], nil
}

func (s *scripted) settle(now int64, g line.Grant, actual []int64, within int64, share int64,
	rebook bool) ([]string, error) {
	flag := 0
	if rebook {
		flag = 1
	}
	reply, err := s.run(lua.Settle, now, g.ID, g.Lane, costsText(g.Costs), costsText(actual),
		fmt.Sprintf("%d %d %d %d %d", g.Start, g.Decided, within, share, flag))
	if err != nil {
		return nil, err
	}
	return texts(reply)[1:], nil
}

func (s *scripted) running(now int64, what string, grants []line.Grant, cooldowns string) ([]string, error) {
	timed := 0
	if s.settings.Timed {
		timed = 1
	}
	args := append([]any{fmt.Sprintf("%s %d", what, timed)}, ended(grants, cooldowns)...)
	reply, err := s.run(lua.Running, now, args...)
	if err != nil {
		return nil, err
	}
	return texts(reply)[1:], nil
}

// ended are the arguments for grants that have ended.
func ended(grants []line.Grant, cooldowns string) (args []any) {
	for _, g := range grants {
		args = append(args, g.ID, g.Start, cooldowns)
	}
	return args
}

// set sets something for so long, for 0 until it is taken back.
func (s *scripted) set(now int64, what, name, value string, lasts int64) ([]string, error) {
	reply, err := s.run(lua.Set, now, what, name, value, fmt.Sprint(lasts), "ann%40host|a+reason")
	if err != nil {
		return nil, err
	}
	return texts(reply)[1:], nil
}

func (s *scripted) usage(now int64, name string) (string, error) {
	reply, err := s.run(lua.Usage, now, "", name)
	if err != nil {
		return "", err
	}
	return texts(reply)[1], nil
}

// report returns the part served before and after, and until when the key is paused.
func (s *scripted) report(now int64, name string, r line.Report) ([]string, error) {
	windows := make([]string, len(r.Limits))
	for i, l := range r.Limits {
		windows[i] = fmt.Sprintf("%d/%d/%d", l.Window, l.Units, l.Remaining)
	}
	refused := 0
	if r.Refused {
		refused = 1
	}
	reply, err := s.run(lua.Report, now, name, fmt.Sprint(refused, r.Started, r.Wait, r.Floor), strings.Join(windows, ","))
	if err != nil {
		return nil, err
	}
	return texts(reply)[1:], nil
}

func stateText(k line.KeyState) string {
	text := fmt.Sprintf("%d %d %c %c %d %d %d", k.Paused, k.Part, k.Mode, k.Origin, k.Ends, k.Flows, k.Timer)
	for _, u := range k.Limits {
		text += fmt.Sprintf("\n%s %d %d %d", u.Limit, u.Used, u.Booked, u.Free)
	}
	return text
}

// onServers runs a test on miniredis and, where there is one, on a real Redis.
func onServers(t *testing.T, test func(t *testing.T, client *redis.Client)) {
	t.Run("miniredis", func(t *testing.T) {
		t.Parallel()
		server := miniredis.RunT(t)
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), DisableIdentity: true})
		t.Cleanup(func() { client.Close() })
		test(t, client)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		test(t, redistest.Shared(t).Client(t))
	})
}
