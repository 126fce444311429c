package site

import (
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/fetch"
)

// While a client does not read a page, a bundled host writes no more of the page than a crawler is charged for data on
// the way, however long that lasts.
func TestBundledHostsLogLittleThatIsNotRead(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("how much a connection keeps is the system's affair")
	}
	var written atomic.Int64
	one := Site{Host: "a.example", Addr: Loopback(2),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for {
				n, err := w.Write(make([]byte, fetch.Kilobyte))
				if written.Add(int64(n)); err != nil {
					return
				}
			}
		})}
	web, err := Start([]Site{one}, new(AccessLog))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(web.Close)
	fetcher := fetch.New(web.resolver(), "crawler", 10*time.Second)
	t.Cleanup(fetcher.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://a.example/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := fetcher.Client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // ends the page
	<-time.After(time.Second)                    // far longer than it takes to fill all buffers
	if got := fetch.Kilobytes(written.Load()); got > fetch.OnTheWay {
		t.Errorf("%d KB were written that nobody read; %d are charged", got, fetch.OnTheWay)
	}
}
