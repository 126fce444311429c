package lua_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/wire"
	"github.com/asynq-throttle/asynq-throttle/lua"
)

// scripted calls the scripts with the questions that line.Line gets, and writes their answers as texts.
type scripted struct {
	client   *redis.Client
	prefix   string
	settings line.Settings
	asking   int
	steps    int // the steps that one call may take; 0: many
	// calendars are the calendars whose edges a script has lacked; far is until when Redis has the edges of all of
	// them.
	calendars []string
	far       int64
}

func (s *scripted) run(script string, now int64, args ...any) (any, error) {
	header := wire.Header{Settings: s.settings, Kept: 30 * 24 * 3600 * 1000, Steps: int64(cmp.Or(s.steps, 8000))}
	header.Lower = max(1, s.settings.Lower)
	texts := header.Texts()
	call := func(script string, args ...any) (any, error) {
		return s.client.Eval(context.Background(), script, []string{s.prefix + "control"},
			append([]any{now, texts[0], texts[1]}, args...)...).Result()
	}
	for {
		reply, err := call(script, args...)
		if err == nil {
			return reply, nil
		}
		missing, is := wire.ReadMissingEdges(err.Error())
		if !is {
			return nil, err
		}
		if !slices.Contains(s.calendars, missing.Calendar) {
			s.calendars = append(s.calendars, missing.Calendar)
		}
		s.far, missing.Until = 0, max(missing.Until, now+histories)
		edges, err := missing.Arguments()
		if err != nil {
			return nil, err
		}
		if _, err := call(lua.Edges, anys(edges)...); err != nil {
			return nil, err
		}
	}
}

// histories is how far ahead the jobs of histories claim starts.
const histories = 450 * 86_400 * second

// storeFar makes Redis keep edges as far ahead as histories claim starts. A pull that lacks edges leaves the scope key
// to the next pull, which package line does not do.
func (s *scripted) storeFar(now int64) error {
	if s.far >= now+histories {
		return nil
	}
	s.far = now + 2*histories
	for _, calendar := range s.calendars {
		edges, err := wire.MissingEdges{Calendar: calendar, From: now, Until: s.far}.Arguments()
		if err != nil {
			return err
		}
		if _, err := s.run(lua.Edges, now, anys(edges)...); err != nil {
			return err
		}
	}
	return nil
}

// anys converts arguments to the type that the client takes.
func anys(texts []string) []any {
	args := make([]any, len(texts))
	for i, text := range texts {
		args[i] = text
	}
	return args
}

// reserve returns a line for each job.
func (s *scripted) reserve(now int64, jobs []line.Job) (int64, []string, error) {
	s.asking++
	args := anys(wire.Reserve{Asker: "me", Asking: int64(s.asking), Jobs: jobs}.Arguments())
	reply, err := s.run(lua.Reserve, now, args...)
	if err != nil {
		return 0, nil, err
	}
	lines := strings.Split(reply.(string), "\n")
	_, next, _ := strings.Cut(lines[0], " ")
	n, err := strconv.ParseInt(next, 10, 64)
	return n, lines[1:], err
}

func texts(reply any) []string {
	var all []string
	for _, v := range reply.([]any) {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// pull returns what a pull did, and the number of the check at which it ended because its steps were used up; 0 if they
// were not.
func (s *scripted) pull(now int64, bookings, looks, brings int, ended ...wire.Ended) (pulled []string, ends int,
	err error) {
	if err := s.storeFar(now); err != nil {
		return nil, 0, err
	}
	asked := wire.Pull{Bookings: int64(bookings), Looks: int64(looks), Delivers: brings == 1, Timed: s.settings.Timed,
		Ended: ended}
	reply, err := s.run(lua.Pull, now, anys(asked.Arguments())...)
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
	reply, err := s.run(lua.Leave, now, anys(ids)...)
	if err != nil {
		return nil, err
	}
	return texts(reply)[1:], nil
}

func (s *scripted) settle(now int64, g line.Grant, actual []int64, within int64, share int64,
	rebook bool) ([]string, error) {
	asked := wire.Settle{Grant: g, Actual: actual, Within: within, Share: share, Rebook: rebook}
	reply, err := s.run(lua.Settle, now, anys(asked.Arguments())...)
	if err != nil {
		return nil, err
	}
	return texts(reply)[1:], nil
}

func (s *scripted) running(now int64, renews bool, grants []line.Grant, cooldowns map[string]int64) ([]string, error) {
	asked := wire.Running{Renews: renews, Timed: s.settings.Timed, Grants: ended(grants, cooldowns)}
	reply, err := s.run(lua.Running, now, anys(asked.Arguments())...)
	if err != nil {
		return nil, err
	}
	return texts(reply)[1:], nil
}

// ended returns grants as ended jobs, all with the same cool-downs.
func ended(grants []line.Grant, cooldowns map[string]int64) []wire.Ended {
	all := make([]wire.Ended, len(grants))
	for i, g := range grants {
		all[i] = wire.Ended{ID: g.ID, Start: g.Start, Cooldowns: cooldowns}
	}
	return all
}

// setNote is the note of each change: who made it, and why.
const setNote = "ann%40host|a+reason"

// set makes a setting that lasts for a time; one of 0 lasts until it is taken back.
func (s *scripted) set(now int64, what, name, value string, lasts int64) ([]string, error) {
	reply, err := s.run(lua.Set, now, what, name, value, fmt.Sprint(lasts), setNote)
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

// report returns the served share before and after the report, and until when the key is paused.
func (s *scripted) report(now int64, name string, r line.Report) ([]string, error) {
	reply, err := s.run(lua.Report, now, anys(wire.Report{Name: name, Report: r}.Arguments())...)
	if err != nil {
		return nil, err
	}
	return texts(reply)[1:], nil
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
