package main

import (
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// However long a page is not read, a bundled host has no more of it in its log than is
// charged for what is on the way.
func TestBundledHostsLogLittleThatIsNotRead(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("how much a connection keeps is the system's affair")
	}
	var written atomic.Int64
	one := site{host: "a.example", addr: loopback(2), handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			n, err := w.Write(make([]byte, kilobyte))
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	})}
	web, err := startWeb([]site{one}, new(accessLog))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	fetcher := newFetcher(web.resolver(), "crawler", 10*time.Second)
	t.Cleanup(fetcher.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.example/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := fetcher.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // it breaks off
	<-time.After(time.Second)                    // far more than it takes to fill what can be filled
	if got := kilobytes(written.Load()); got > onTheWay {
		t.Errorf("%d KB were written that nobody read; %d are charged", got, onTheWay)
	}
}
