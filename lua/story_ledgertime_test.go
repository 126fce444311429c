package lua_test

import (
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// TestLedgerTimeIsThatOfWhatLeft: a scope key remembers when an entry last left its windows, even if the call charged
// nothing. So after a step back of the clock no job starts at a time of the ledgers at which that entry still counted.
func TestLedgerTimeIsThatOfWhatLeft(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		s := &scripted{client: client, prefix: "thr:{" + rand.Text() + "}:4:", settings: line.Settings{
			Lookahead: second, Grace: 5 * second,
			Scopes: map[string]line.Scope{"global": {Mode: line.Enforce,
				Limits: []line.Limit{{Units: 10, Span: line.Window(2 * second), Precision: 1}}}},
		}}
		seen := func() string {
			t.Helper()
			text, err := client.Get(t.Context(), s.prefix+"key:global:").Result()
			if err != nil {
				t.Fatal(err)
			}
			return strings.Fields(text)[1]
		}
		reserve := func(now int64, id string, cost int64, want string) {
			t.Helper()
			_, answers,
				err := s.reserve(now, []line.Job{{ID: id, Lane: "|global:", Costs: []int64{cost}, Latest: line.Never, Share: 1}})
			if err != nil || !strings.HasPrefix(answers[0], want) {
				t.Fatalf("job %s: got %q, %v; want %q", id, answers, err, want)
			}
		}
		reserve(dawn, "a", 4, "1 ")
		reserve(dawn+second, "b", 6, "1 ")
		look := dawn + 2*second + second/2
		reserve(look, "c", 10, "2 ") // a has left, and b has not: the job is booked
		if got, want := seen(), fmt.Sprint(look); got != want {
			t.Errorf("seen at %s, want %s", got, want)
		}
		late := look + second
		reserve(late, "d", 10, "3 ") // b has left; it waits, and nothing is charged or booked
		if got, want := seen(), fmt.Sprint(late); got != want {
			t.Errorf("b has left: seen at %s, want %s", got, want)
		}
	})
}
