package line

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestRankedAt: each rank has its name and score, and beyond the last there is none.
func TestRankedAt(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	var of ranked[int64]
	for i := range 50 {
		of.set(fmt.Sprintf("name-%d", i), r.Int64N(10)) // several have the same score
	}
	for rank, want := range of.sorted() {
		score, _ := of.get(want)
		if name, at, is := of.at(rank); !is || name != want || at != score {
			t.Errorf("rank %d: got %s with %d (%t), want %s with %d", rank, name, at, is, want, score)
		}
	}
	if name, _, is := of.at(of.len()); is {
		t.Errorf("beyond the last rank: got %s, want none", name)
	}
	if name, _, is := new(ranked[int64]).at(0); is {
		t.Errorf("of an empty order: got %s, want none", name)
	}
}
