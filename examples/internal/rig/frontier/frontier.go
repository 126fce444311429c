package frontier

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/robots"
)

// Frontier keeps in Redis what a crawl has found and what is left to do, so that any
// process can continue where another stopped. A URL is one page. Each host has a line of
// pages, and asynq has one of them at a time: the host's turn. That is a crawler's oldest
// rule of politeness, one connection to a host; and so a page never waits behind others of
// its host in the throttle's line.
//
// The call that ends a turn begins the next one. A call for an old turn, such as by a task
// that asynq runs twice, changes nothing.
type Frontier struct {
	rdb    redis.UniversalClient
	prefix string // one hash tag, so that the scripts' keys are in one slot
	By     string // names this process among all that work on the crawl
}

// New returns the frontier that is kept for an asynq queue.
func New(rdb redis.UniversalClient, queue string) *Frontier {
	return &Frontier{rdb: rdb, prefix: "crawler:{" + queue + "}:", By: rand.Text()}
}

// Turn is the page of a host that asynq has, or should have.
type Turn struct {
	Host   string
	Number int64
	Page   *Page
}

// TaskID returns the ID of the turn's task. asynq accepts an ID only once.
func (t *Turn) TaskID() string { return fmt.Sprintf("%s-%d", t.Host, t.Number) }

// state returns the turn as Redis keeps it.
func (t *Turn) state() string { return fmt.Sprintf("%d %s", t.Number, t.Page.URL) }

// addScript puts a page that is not known into its host's line: behind its customer's
// pages, among the pages of other customers, and behind the host's robots.txt. It returns
// 1 if this began a turn of the host.
var addScript = redis.NewScript(`
local pages, line, busy, turns, counts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local url, page, over, robots_url, robots, host, customer, budget =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[8])
if redis.call('HEXISTS', pages, url) == 1 then
  return 0
end
if redis.call('HINCRBY', counts, host, 1) > budget then
  redis.call('HSET', pages, url, over)
  return 0
end
if redis.call('HSETNX', pages, robots_url, robots) == 1 then
  redis.call('ZADD', line, -1, robots_url)
end
if redis.call('HSETNX', pages, url, page) == 1 then
  redis.call('ZADD', line, redis.call('HINCRBY', counts, host .. ' ' .. customer, 1), url)
end
if redis.call('SADD', busy, host) == 0 then
  return 0
end
local number = string.match(redis.call('HGET', turns, host) or '0 ', '^%d+')
redis.call('HSET', turns, host, string.format('%d ', number + 1) .. redis.call('ZRANGE', line, 0, 0)[1])
return 1
`)

// moveScript ends a host's turn: its page leaves the line, or moves to a given position;
// the first page in line has the next turn. It returns 1 if there is a next turn.
var moveScript = redis.NewScript(`
local pages, line, busy, turns = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local host, turn, url, page, place = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('HGET', turns, host) ~= turn then
  return 0
end
redis.call('HSET', pages, url, page)
if place ~= '' then
  redis.call('ZADD', line, place, url)
else
  redis.call('ZREM', line, url)
end
local head = redis.call('ZRANGE', line, 0, 0)[1]
redis.call('HSET', turns, host, string.format('%d ', string.match(turn, '^%d+') + 1) .. (head or ''))
if not head then
  redis.call('SREM', busy, host)
  return 0
end
return 1
`)

// Positions in a host's line. Pages count from 1.
const (
	placeRobots = "-1"
	placeFirst  = "0"
	placeLast   = "1e9"
)

// Key returns the name of a key in Redis.
func (f *Frontier) Key(name string) string { return f.prefix + name }

// keys returns the keys of the scripts, without the last key of addScript.
func (f *Frontier) keys(host string) []string {
	return []string{f.Key("pages"), f.Key("line:" + host), f.Key("busy"), f.Key("turns")}
}

// Add adds a page and the robots.txt of its host. It returns the host's turn if this began
// one, and nil if the host had a turn or the page was known. A host takes no more pages
// than its budget.
func (f *Frontier) Add(ctx context.Context, host string, p, robots *Page, budget int) (*Turn, error) {
	over := *p
	over.End(EndOverBudget, "")
	over.By = f.By
	begun, err := addScript.Run(ctx, f.rdb, append(f.keys(host), f.Key("counts")),
		p.URL, p.text(), over.text(), robots.URL, robots.text(), host, p.Customer, budget).Bool()
	if err != nil {
		return nil, fmt.Errorf("crawler: add %s: %w", p.URL, err)
	}
	if !begun {
		return nil, nil
	}
	return f.turn(ctx, host)
}

// end ends a turn and its page. It returns the host's next turn, or nil if there is none.
func (f *Frontier) end(ctx context.Context, t *Turn) (*Turn, error) { return f.move(ctx, t, "") }

// move ends a turn and moves its page to a position in line, or ends the page if the
// position is empty. It returns the host's next turn, or nil if there is none.
func (f *Frontier) move(ctx context.Context, t *Turn, place string) (*Turn, error) {
	if t.Page.Ended != "" && t.Page.By == "" {
		t.Page.By = f.By
	}
	more, err := moveScript.Run(ctx, f.rdb, f.keys(t.Host), t.Host, t.state(), t.Page.URL, t.Page.text(), place).Bool()
	if err != nil {
		return nil, fmt.Errorf("crawler: move %s: %w", t.Page.URL, err)
	}
	if !more {
		return nil, nil
	}
	return f.turn(ctx, t.Host)
}

// rulesFirst gives the turn to the robots.txt of the turn's page.
func (f *Frontier) rulesFirst(ctx context.Context, t *Turn) (*Turn, error) {
	u, err := t.Page.Location()
	if err != nil {
		return nil, err
	}
	rules := &Page{URL: robots.URL(u).String(), Customer: t.Page.Customer, Robots: true}
	_, err = f.rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.HSet(ctx, f.Key("pages"), rules.URL, rules.text())
		tx.Do(ctx, "ZADD", f.Key("line:"+t.Host), placeRobots, rules.URL)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("crawler: rules of %s: %w", t.Host, err)
	}
	return f.move(ctx, t, placeFirst)
}

// turn returns a host's turn, or nil if it has none.
func (f *Frontier) turn(ctx context.Context, host string) (*Turn, error) {
	state, err := f.rdb.HGet(ctx, f.Key("turns"), host).Result()
	if err != nil {
		return nil, fmt.Errorf("crawler: turn of %s: %w", host, err)
	}
	digits, url, _ := strings.Cut(state, " ")
	if url == "" {
		return nil, nil
	}
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("crawler: turn of %s: %w", host, err)
	}
	text, err := f.rdb.HGet(ctx, f.Key("pages"), url).Result()
	if err != nil {
		return nil, fmt.Errorf("crawler: page %s: %w", url, err)
	}
	p, err := parsePage(text)
	return &Turn{Host: host, Number: number, Page: p}, err
}

// keep stores a page without ending its turn.
func (f *Frontier) keep(ctx context.Context, p *Page) error {
	return f.rdb.HSet(ctx, f.Key("pages"), p.URL, p.text()).Err()
}

// busy returns the hosts that have a turn. The crawl is over when there are none.
func (f *Frontier) busy(ctx context.Context) ([]string, error) {
	return f.rdb.SMembers(ctx, f.Key("busy")).Result()
}

// Counts returns about how many pages are known and how many of them are in line, since
// the lines change while it counts. It is exact about whether the crawl is over.
func (f *Frontier) Counts(ctx context.Context) (known, open int64, over bool, err error) {
	hosts, err := f.busy(ctx)
	if err != nil {
		return 0, 0, false, err
	}
	lines := make([]*redis.IntCmd, len(hosts))
	_, err = f.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, host := range hosts {
			lines[i] = pipe.ZCard(ctx, f.Key("line:"+host))
		}
		return nil
	})
	for _, line := range lines {
		open += line.Val()
	}
	if err != nil {
		return 0, 0, false, err
	}
	known, err = f.rdb.HLen(ctx, f.Key("pages")).Result()
	return known, open, len(hosts) == 0 && err == nil, err
}

// Pages returns all known pages.
func (f *Frontier) Pages(ctx context.Context) ([]*Page, error) {
	texts, err := f.rdb.HVals(ctx, f.Key("pages")).Result()
	if err != nil {
		return nil, err
	}
	pages := make([]*Page, 0, len(texts))
	for _, text := range texts {
		p, err := parsePage(text)
		if err != nil {
			return nil, err
		}
		pages = append(pages, p)
	}
	return pages, nil
}
