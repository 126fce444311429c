package frontier

import (
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

func newTestFrontier(t *testing.T) *Frontier {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { client.Close() })
	return New(client, "test")
}

// put adds a page of alder.example for a customer.
func put(t *testing.T, f *Frontier, path, customer string, budget int) *Turn {
	t.Helper()
	rules := &Page{URL: "http://alder.example/robots.txt", Customer: customer, Robots: true}
	turn, err := f.Add(t.Context(), "alder.example", &Page{URL: "http://alder.example" + path, Customer: customer},
		rules, budget)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// drain ends one turn after another and returns the pages that had them.
func drain(t *testing.T, f *Frontier, one *Turn) []string {
	t.Helper()
	var paths []string
	for one != nil {
		paths = append(paths, one.Page.URL[len("http://alder.example"):])
		one.Page.End(EndFetched, "")
		var err error
		if one, err = f.end(t.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func expectCounts(t *testing.T, f *Frontier, known, open int64) {
	t.Helper()
	if k, o, over, err := f.Counts(t.Context()); err != nil || k != known || o != open || over != (open == 0) {
		t.Errorf("%d pages are known, %d open, over %v, %v; want %d, %d", k, o, over, err, known, open)
	}
}

func TestFrontierGivesAHostOneTurnAtATime(t *testing.T) {
	t.Parallel()
	f := newTestFrontier(t)
	expectCounts(t, f, 0, 0)
	first := put(t, f, "/a", "acme", 10)
	if first == nil || first.Number != 1 || !first.Page.Robots {
		t.Fatalf("got %+v, want the robots.txt first", first)
	}
	if again := put(t, f, "/b", "acme", 10); again != nil {
		t.Errorf("got a second turn: %+v", again)
	}
	if twice := put(t, f, "/a", "globex", 10); twice != nil {
		t.Errorf("a page is known twice: %+v", twice)
	}
	expectCounts(t, f, 3, 3)
	if paths := drain(t, f, first); !slices.Equal(paths, []string{"/robots.txt", "/a", "/b"}) {
		t.Errorf("got %v", paths)
	}
	expectCounts(t, f, 3, 0)
	if late := put(t, f, "/c", "acme", 10); late == nil || late.Number != 5 || late.Page.URL != "http://alder.example/c" {
		t.Errorf("got %+v, want a turn for a host that had none", late)
	}
}

// The customer that has had fewer pages of a host comes before a customer that has had more.
func TestFrontierMixesCustomers(t *testing.T) {
	t.Parallel()
	f := newTestFrontier(t)
	first := put(t, f, "/a1", "acme", 10)
	put(t, f, "/a2", "acme", 10)
	put(t, f, "/a3", "acme", 10)
	put(t, f, "/b1", "globex", 10)
	put(t, f, "/b2", "globex", 10)
	if paths := drain(t, f, first); !slices.Equal(paths, []string{"/robots.txt", "/a1", "/b1", "/a2", "/b2", "/a3"}) {
		t.Errorf("got %v", paths)
	}
}

func TestFrontierIgnoresAnOldTurn(t *testing.T) {
	t.Parallel()
	f := newTestFrontier(t)
	first := put(t, f, "/a", "acme", 10)
	second, err := f.end(t.Context(), first)
	if err != nil || second == nil {
		t.Fatal(second, err)
	}
	if again, err := f.end(t.Context(), first); err != nil || again != nil {
		t.Errorf("the same turn ended twice: %+v, %v", again, err)
	}
	expectCounts(t, f, 2, 1)
	now, err := f.turn(t.Context(), "alder.example")
	if err != nil || now.Number != second.Number || now.Page.URL != second.Page.URL {
		t.Errorf("got %+v, %v; want %+v", now, err, second)
	}
}

func TestFrontierKeepsToABudget(t *testing.T) {
	t.Parallel()
	f := newTestFrontier(t)
	first := put(t, f, "/a", "acme", 2)
	put(t, f, "/b", "acme", 2)
	put(t, f, "/c", "acme", 2)
	put(t, f, "/c", "acme", 2)
	if paths := drain(t, f, first); !slices.Equal(paths, []string{"/robots.txt", "/a", "/b"}) {
		t.Errorf("got %v", paths)
	}
	pages, err := f.Pages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	over := 0
	for _, p := range pages {
		if p.Ended == EndOverBudget {
			over++
		}
	}
	if over != 1 || len(pages) != 4 {
		t.Errorf("%d of %d pages are over budget, want 1 of 4", over, len(pages))
	}
}

// A page may be given another turn, at once or after all other pages. A robots.txt that is too
// old is fetched again before the page that has the turn.
func TestFrontierGivesAnotherTurn(t *testing.T) {
	t.Parallel()
	f := newTestFrontier(t)
	turn := put(t, f, "/a", "acme", 10)
	put(t, f, "/b", "acme", 10)
	turn, err := f.end(t.Context(), turn)
	if err != nil {
		t.Fatal(err)
	}
	turn.Page.KB = 77
	if turn, err = f.move(t.Context(), turn, placeFirst); err != nil || turn.Page.KB != 77 || turn.Number != 3 {
		t.Fatalf("got %+v, %v", turn, err)
	}
	if turn, err = f.move(t.Context(), turn, placeLast); err != nil {
		t.Fatal(err)
	}
	if turn, err = f.rulesFirst(t.Context(), turn); err != nil {
		t.Fatal(err)
	}
	expectCounts(t, f, 3, 3)
	if paths := drain(t, f, turn); !slices.Equal(paths, []string{"/robots.txt", "/b", "/a"}) {
		t.Errorf("got %v", paths)
	}
	expectCounts(t, f, 3, 0)
}

func TestHostNotes(t *testing.T) {
	t.Parallel()
	f := newTestFrontier(t)
	if notes, err := f.Notes(t.Context(), "alder.example"); err != nil || notes != (HostNotes{}) {
		t.Errorf("got %+v, %v", notes, err)
	}
	want := HostNotes{Largest: 7, Delay: 3}
	if err := f.setNotes(t.Context(), "alder.example", want); err != nil {
		t.Fatal(err)
	}
	if notes, err := f.Notes(t.Context(), "alder.example"); err != nil || notes != want {
		t.Errorf("got %+v, %v", notes, err)
	}
	if _, known, err := f.robots(t.Context(), "http://alder.example"); known || err != nil {
		t.Errorf("a robots.txt is known: %v", err)
	}
	if err := f.setRobots(t.Context(), "http://alder.example", ""); err != nil {
		t.Fatal(err)
	}
	if text, known, err := f.robots(t.Context(), "http://alder.example"); text != "" || !known || err != nil {
		t.Errorf("got %q, %v, %v", text, known, err)
	}
}
