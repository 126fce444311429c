package browsertest

import (
	"bufio"
	"net/http"
	"testing"
)

// TestAPageTooMany: a page that is one too many says so in a sentence, not that the dashboard
// does not answer.
func TestAPageTooMany(t *testing.T) {
	w := newWorld(t)
	for range 40 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+"events?page=", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		if _, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	b := openTab(t, w.base)
	b.expectErrors() // status 429
	b.open("")
	b.shows("40 pages are open from where you are")
	b.shows("6 jobs of 2 flows")
	b.await("!document.getElementById('lost').innerText.includes('does not answer')")
}
