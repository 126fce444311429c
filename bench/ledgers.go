package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The numbers of entries of the ledgers that are compared.
const (
	shortLedger = 100
	longLedger  = 1000 // the most that a ledger may have
)

// ledgers compares decisions under a short and a long exact ledger. It does so where the ledgers are full and each job
// is refused, and where they have room and an entry leaves for each one that comes.
func ledgers(ctx context.Context, b *bench) error {
	return withAwakeServer(ctx, func(s *server, client *redis.Client) error {
		full := make(map[int]*throttle.Throttle)
		for _, entries := range []int{shortLedger, longLedger} {
			th, err := open(client, "full-"+strconv.Itoa(entries), nil,
				limits{{Units: int64(entries), Window: time.Hour, Precision: throttle.Exact}}, nil)
			if err != nil {
				return err
			}
			for i := range entries {
				if err := ask(ctx, th, job(strconv.Itoa(i), "acme")); err != nil {
					return err
				}
			}
			full[entries] = th
		}
		late := job("late", "acme")
		late.Deadline = time.Now()
		refused, err := b.compareLedgers(ctx, s, b.calls/4, func(entries, _ int) error {
			_, err := full[entries].Reserve(ctx, late)
			if !errors.As(err, new(*throttle.DeadlineError)) {
				return fmt.Errorf("got %w, want a DeadlineError", err)
			}
			return nil
		})
		if err != nil {
			return err
		}
		b.printLedgers("refused, the exact ledger is full", refused)

		// At ten thousand decisions a second the window holds the full number of entries, at fewer decisions fewer
		// entries.
		sliding, asked := make(map[int]*throttle.Throttle), 0
		for _, entries := range []int{shortLedger, longLedger} {
			window := time.Duration(entries) * 100 * time.Microsecond
			if sliding[entries], err = open(client, "sliding-"+strconv.Itoa(entries), nil,
				limits{{Units: 1_000_000, Window: window, Precision: window / time.Duration(entries)}}, nil); err != nil {
				return err
			}
		}
		granted, err := b.compareLedgers(ctx, s, b.calls, func(entries, _ int) error {
			asked++
			return ask(ctx, sliding[entries], job(strconv.Itoa(asked), "acme"))
		})
		if err != nil {
			return err
		}
		b.printLedgers("granted, entries leave a ledger as others come", granted)
		return nil
	})
}

// ledgerFigures are the server's CPU per call under either ledger, and their ratio.
type ledgerFigures struct{ short, long, ratio []float64 }

func (b *bench) compareLedgers(ctx context.Context, s *server, calls int,
	decide func(entries, i int) error) (ledgerFigures, error) {
	var f ledgerFigures
	calls = max(1, calls)
	for range b.rounds {
		var cpu [2]float64
		for i, entries := range []int{shortLedger, longLedger} {
			is, err := s.during(ctx, func() error {
				_, err := together(calls, 1, func(i int) error { return decide(entries, i) })
				return err
			})
			if err != nil {
				return f, err
			}
			cpu[i] = micros(is.cpu) / float64(calls)
		}
		f.short, f.long, f.ratio = append(f.short, cpu[0]), append(f.long, cpu[1]), append(f.ratio, cpu[1]/cpu[0])
	}
	return f, nil
}

func (b *bench) printLedgers(what string, f ledgerFigures) {
	b.say("%s (1 goroutine, awake): %.1f µs of CPU with %d entries, %.1f with %d", what, median(f.short),
		shortLedger, median(f.long), longLedger)
	b.most("CPU under the long ledger to the short one", median(f.ratio), 1.2)
}
