package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// frontier is what a crawl has found and what is left of it, in Redis: so any
// process goes on where another stopped. Each page is known by its URL once. Each
// host has a line of pages, and one of them at a time is in asynq: the host's turn.
// That is a crawler's oldest rule of politeness, one connection to a host; and so a
// page never stands behind others of its host in the throttle's line.
//
// A turn is moved on by what ends it. Whoever comes with an old turn, such as a
// task that asynq runs twice, changes nothing.
type frontier struct {
	rdb    redis.UniversalClient
	prefix string // one hash tag, so that the scripts' keys are in one slot
	by     string // this process among all that ever work on the crawl
}

func newFrontier(rdb redis.UniversalClient, queue string) *frontier {
	return &frontier{rdb: rdb, prefix: "crawler:{" + queue + "}:", by: rand.Text()}
}

// turn is a host's page that is to be in asynq.
type turn struct {
	host   string
	number int64
	page   *page
}

// taskID is the turn's in asynq, which takes an id only once.
func (t *turn) taskID() string { return fmt.Sprintf("%s-%d", t.host, t.number) }

// state is the turn as Redis keeps it.
func (t *turn) state() string { return fmt.Sprintf("%d %s", t.number, t.page.URL) }

// addScript puts a page that is not known into its host's line, behind those of
// its customer and among those of others, and the host's robots.txt before all. It
// returns 1 if the host has its turn by this.
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

// moveScript ends a host's turn: its page leaves the line, or stands in it anew at
// the place that is given; the first one in line has the next turn. It returns 1 if
// there is one.
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

// Places in a host's line: those of pages are counted from 1.
const (
	placeRobots = "-1"
	placeFirst  = "0"
	placeLast   = "1e9"
)

func (f *frontier) key(name string) string { return f.prefix + name }

// keys are those of the scripts, but for the last one of addScript.
func (f *frontier) keys(host string) []string {
	return []string{f.key("pages"), f.key("line:" + host), f.key("busy"), f.key("turns")}
}

// add makes a page known, and the robots.txt of its host. It returns the host's
// turn if it has one by this; nil if it had one already, or the page was known
// before. A host takes no more pages than its budget.
func (f *frontier) add(ctx context.Context, host string, p, robots *page, budget int) (*turn, error) {
	over := *p
	over.end(endOverBudget, "")
	over.By = f.by
	begun, err := addScript.Run(ctx, f.rdb, append(f.keys(host), f.key("counts")),
		p.URL, p.text(), over.text(), robots.URL, robots.text(), host, p.Customer, budget).Bool()
	if err != nil {
		return nil, fmt.Errorf("crawler: add %s: %w", p.URL, err)
	}
	if !begun {
		return nil, nil
	}
	return f.turn(ctx, host)
}

// end ends a turn and its page; it returns the next one, nil if the host has no
// more.
func (f *frontier) end(ctx context.Context, t *turn) (*turn, error) { return f.move(ctx, t, "") }

// move ends a turn and puts its page into the line again, or ends it too if there
// is no place for it.
func (f *frontier) move(ctx context.Context, t *turn, place string) (*turn, error) {
	if t.page.Ended != "" && t.page.By == "" {
		t.page.By = f.by
	}
	more, err := moveScript.Run(ctx, f.rdb, f.keys(t.host), t.host, t.state(), t.page.URL, t.page.text(), place).Bool()
	if err != nil {
		return nil, fmt.Errorf("crawler: move %s: %w", t.page.URL, err)
	}
	if !more {
		return nil, nil
	}
	return f.turn(ctx, t.host)
}

// rulesFirst lets the robots.txt of a turn's page have the turn before it.
func (f *frontier) rulesFirst(ctx context.Context, t *turn) (*turn, error) {
	u, err := t.page.location()
	if err != nil {
		return nil, err
	}
	rules := &page{URL: robotsURL(u).String(), Customer: t.page.Customer, Robots: true}
	_, err = f.rdb.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.HSet(ctx, f.key("pages"), rules.URL, rules.text())
		tx.Do(ctx, "ZADD", f.key("line:"+t.host), placeRobots, rules.URL)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("crawler: rules of %s: %w", t.host, err)
	}
	return f.move(ctx, t, placeFirst)
}

// turn is a host's turn; nil if it has none.
func (f *frontier) turn(ctx context.Context, host string) (*turn, error) {
	state, err := f.rdb.HGet(ctx, f.key("turns"), host).Result()
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
	text, err := f.rdb.HGet(ctx, f.key("pages"), url).Result()
	if err != nil {
		return nil, fmt.Errorf("crawler: page %s: %w", url, err)
	}
	p, err := parsePage(text)
	return &turn{host: host, number: number, page: p}, err
}

// keep writes down what a turn has learned about its page without ending it.
func (f *frontier) keep(ctx context.Context, p *page) error {
	return f.rdb.HSet(ctx, f.key("pages"), p.URL, p.text()).Err()
}

// busy is the hosts that have a turn. The crawl is over when there are none.
func (f *frontier) busy(ctx context.Context) ([]string, error) {
	return f.rdb.SMembers(ctx, f.key("busy")).Result()
}

// counts is how many pages are known, and how many of them stand in line, about:
// the lines go on while they are counted. That the crawl is over is for sure.
func (f *frontier) counts(ctx context.Context) (known, open int64, over bool, err error) {
	hosts, err := f.busy(ctx)
	if err != nil {
		return 0, 0, false, err
	}
	lines := make([]*redis.IntCmd, len(hosts))
	_, err = f.rdb.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, host := range hosts {
			lines[i] = pipe.ZCard(ctx, f.key("line:"+host))
		}
		return nil
	})
	for _, line := range lines {
		open += line.Val()
	}
	if err != nil {
		return 0, 0, false, err
	}
	known, err = f.rdb.HLen(ctx, f.key("pages")).Result()
	return known, open, len(hosts) == 0 && err == nil, err
}

// pages is all pages that are known.
func (f *frontier) pages(ctx context.Context) ([]*page, error) {
	texts, err := f.rdb.HVals(ctx, f.key("pages")).Result()
	if err != nil {
		return nil, err
	}
	pages := make([]*page, 0, len(texts))
	for _, text := range texts {
		p, err := parsePage(text)
		if err != nil {
			return nil, err
		}
		pages = append(pages, p)
	}
	return pages, nil
}
