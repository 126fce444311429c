package connect_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/asynq-throttle/asynq-throttle/connect"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

func TestMain(m *testing.M) {
	// A new client looks its host's name up. The tests neither ask another machine for it nor wait for one.
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no names outside of this machine")
	}}
	goleak.VerifyTestMain(longtest.Quiet(m))
}

// opened has those of a client's options that a URL decides.
type opened struct {
	Client         string // its kind
	Addrs          []string
	User, Password string
	DB, Pool       int
	TLS            bool
	ServerName     string
	Dial, Read     time.Duration
	Redirects      int
	Reload         time.Duration
}

func look(t *testing.T, client redis.UniversalClient) opened {
	t.Helper()
	t.Cleanup(func() { _ = client.Close() })
	var o opened
	var config *tls.Config
	switch c := client.(type) {
	case *redis.Client:
		has := c.Options()
		config = has.TLSConfig
		o = opened{
			Client: has.Network, Addrs: []string{has.Addr}, User: has.Username, Password: has.Password, DB: has.DB,
			Pool: has.PoolSize, Dial: has.DialTimeout, Read: has.ReadTimeout,
		}
		if !has.ContextTimeoutEnabled || has.DialerRetries != 5 || has.WriteTimeout != has.ReadTimeout {
			t.Errorf("got %+v", has)
		}
	case *redis.ClusterClient:
		has := c.Options()
		config = has.TLSConfig
		o = opened{
			Client: "cluster", Addrs: has.Addrs, User: has.Username, Password: has.Password, Pool: has.PoolSize,
			Dial: has.DialTimeout, Read: has.ReadTimeout, Redirects: has.MaxRedirects, Reload: has.ClusterStateReloadInterval,
		}
		if !has.ContextTimeoutEnabled || has.DialerRetries != 1 || has.WriteTimeout != has.ReadTimeout {
			t.Errorf("got %+v", has)
		}
	}
	if o.TLS = config != nil; o.TLS {
		o.ServerName = config.ServerName
	}
	return o
}

func TestOpen(t *testing.T) {
	t.Parallel()
	const sec, half = time.Second, time.Second / 2
	pool, clusterPool := 10*runtime.GOMAXPROCS(0), 5*runtime.GOMAXPROCS(0) // go-redis' defaults
	for _, row := range []struct {
		url  string
		want opened
	}{
		{"10.0.0.1:7000", opened{Client: "tcp", Addrs: []string{"10.0.0.1:7000"}}},
		{":6379", opened{Client: "tcp", Addrs: []string{"localhost:6379"}}},
		{"redis://", opened{Client: "tcp", Addrs: []string{"localhost:6379"}}},
		{"redis://h", opened{Client: "tcp", Addrs: []string{"h:6379"}}},
		{"redis://[::1]", opened{Client: "tcp", Addrs: []string{"[::1]:6379"}}},
		{"redis://[::1]:1", opened{Client: "tcp", Addrs: []string{"[::1]:1"}}},
		{"redis://me:p%40s%2Fs@h:1/3", opened{Client: "tcp", Addrs: []string{"h:1"}, User: "me", Password: "p@s/s", DB: 3}},
		{"redis://:a:b@h:1?db=3", opened{Client: "tcp", Addrs: []string{"h:1"}, Password: "a:b", DB: 3}},
		{"redis://a@b@h", opened{Client: "tcp", Addrs: []string{"h:6379"}, User: "a@b"}},
		{"redis://h?pool_size=7&dial_timeout=3s&read_timeout=4&write_timeout=4s",
			opened{Client: "tcp", Addrs: []string{"h:6379"}, Pool: 7, Dial: 3 * sec, Read: 4 * sec}},
		{"rediss://h:1", opened{Client: "tcp", Addrs: []string{"h:1"}, TLS: true, ServerName: "h"}},
		{"unix:///run/redis.sock?db=2", opened{Client: "unix", Addrs: []string{"/run/redis.sock"}, DB: 2}},
		{"unix://me:pw@/run/a%20b", opened{Client: "unix", Addrs: []string{"/run/a b"}, User: "me", Password: "pw"}},
		{"redis-socket:///run/redis.sock", opened{Client: "unix", Addrs: []string{"/run/redis.sock"}}},
		{"redis-sentinel://:pw@h1:1,h2/4?master=m&username=u&password=p%40",
			opened{Client: "tcp", Addrs: []string{"FailoverClient"}, User: "u", Password: "p@", DB: 4}},
		{"rediss-sentinel://h1?master_name=m&pool_size=9",
			opened{Client: "tcp", Addrs: []string{"FailoverClient"}, TLS: true, Pool: 9}},
		{"redis-cluster://me:pw@h1:1,h2,[::1]:3",
			opened{Client: "cluster", Addrs: []string{"h1:1", "h2:6379", "[::1]:3"}, User: "me", Password: "pw"}},
		{"redis-cluster://h1:1/0?addr=h2:2&max_redirects=5",
			opened{Client: "cluster", Addrs: []string{"h1:1", "h2:2"}, Redirects: 5}},
		{"rediss-cluster://h1,h2", opened{Client: "cluster", Addrs: []string{"h1:6379", "h2:6379"}, TLS: true}},
	} {
		client, err := connect.Open(row.url)
		if err != nil {
			t.Errorf("%s: %v", row.url, err)
			continue
		}
		got, want := look(t, client), row.want
		slices.Sort(got.Addrs)
		slices.Sort(want.Addrs)
		if want.Dial == 0 {
			want.Dial, want.Read = sec, 2*sec
		}
		if want.Pool == 0 {
			want.Pool = pool
		}
		if want.Client == "cluster" {
			want.Reload = half
			if want.Redirects == 0 {
				want.Redirects = 3
			}
			if row.want.Pool == 0 {
				want.Pool = clusterPool
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.url, diff)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ url, want string }{
		{"", "connect: address: want host:port or a URL"},
		{"hunter2", "connect: address: want host:port or a URL"},
		{"me:hunter2@h:1", "connect: address: want host:port or a URL"},
		{"http://hunter2",
			"connect: scheme: want redis, rediss, unix, redis-sentinel, rediss-sentinel, redis-cluster or rediss-cluster"},
		{"hunter2://h", "connect: scheme: want redis,"},
		{"redis://me:hun/ter2@h", "connect: redis URL: user: an @ behind the addresses"},
		{"redis://me:hun?hunter2@h", "connect: redis URL: user: an @ behind"},
		{"redis://me:hun#hunter2@h", "connect: redis URL: user: an @ behind"},
		{"redis://me:hunter2%@h", "connect: redis URL: user: a % that begins no escape"},
		{"redis://me:hunter2@h:port", "connect: redis URL: address: want host or host:port"},
		{"redis://me:hunter2@h:0", "connect: redis URL: address: "},
		{"redis://me:hunter2@h:65536", "connect: redis URL: address: "},
		{"redis://me:hunter2@::1", "connect: redis URL: address: "},
		{"redis://me:hunter2@[::1", "connect: redis URL: address: "},
		{"redis://me:hunter2@h h", "connect: redis URL: address: "},
		{"redis://me:hunter2@h1,h2",
			"connect: redis URL: address: one server has one address; want redis-sentinel or redis-cluster?"},
		{"redis://me:hunter2@h/x", "connect: redis URL: path: want the number of a database, or nothing"},
		{"redis://me:hunter2@h/1/2", "connect: redis URL: path: want the number of a database"},
		{"redis://me:hunter2@h/%", "connect: redis URL: path: a % that begins no escape"},
		{"redis://me:hunter2@h/#1", "connect: redis URL: path: escape a # (%23)"},
		{"redis://me:hunter2@h?colour=red", "connect: redis URL: go-redis: unexpected option: colour"},
		{"redis://me:hunter2@h?password=hunter2", "connect: redis URL: go-redis: unexpected option: password"},
		{"redis://me:hunter2@h?dial_timeout=soon",
			`connect: redis URL: go-redis: invalid dial_timeout duration: time: invalid duration "soon"`},
		{"redis://me:hunter2@h?pool_size=9999999999",
			"connect: redis URL: parameter pool_size: is not between -1 and 1000000"},
		{"redis://me:hunter2@h?pool_size=-2", "connect: redis URL: parameter pool_size: is not"},
		{"redis://me:hunter2@h?pool_size=-1", "connect: redis URL: parameter pool_size: is not between 0 and 1000000"},
		{"redis://me:hunter2@h?pool_size=%", "connect: redis URL: parameters: cannot be parsed"},
		{"unix://me:hunter2@", "connect: unix URL: go-redis: empty unix socket path"},
		{"unix://run/redis.sock", "connect: unix URL: address: want none before the path of the socket: unix:///path"},
		{"redis-sentinel://me:hunter2@h1,h2", "connect: redis-sentinel URL: parameter master: is missing"},
		{"redis-sentinel://me:hunter2@h1,,h2?master=m", "connect: redis-sentinel URL: address: "},
		{"redis-sentinel://me:hunter2@?master=m", "connect: redis-sentinel URL: address: "},
		{"redis-sentinel://h?master=m&password=hunter2&colour=red",
			"connect: redis-sentinel URL: go-redis: unexpected option: colour"},
		{"redis-sentinel://h?master=m&password=hunter2%", "connect: redis-sentinel URL: parameters: cannot be parsed"},
		{"redis-sentinel://h?master=m&replica_only=true",
			"connect: redis-sentinel URL: parameter replica_only: the client would read from replicas"},
		{"redis-sentinel://h?master=m&route_randomly=true",
			"connect: redis-sentinel URL: parameter route_randomly: the client would"},
		{"redis-cluster://me:hunter2@h1/1", "connect: redis-cluster URL: path: a cluster has one database, 0"},
		{"redis-cluster://me:hunter2@h1?read_only=true", "connect: redis-cluster URL: parameter read_only: the client would"},
		{"redis-cluster://me:hunter2@h1?addr=h2", "connect: redis-cluster URL: go-redis: unable to parse addr param: h2"},
	} {
		client, err := connect.Open(row.url)
		var wrong *connect.URLError
		if !errors.As(err, &wrong) || !strings.HasPrefix(err.Error(), row.want) || client != nil {
			t.Errorf("%s:\ngot  %v\nwant %s", row.url, err, row.want)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "ter2") {
			t.Errorf("%s: the error tells the password: %v", row.url, err)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add("redis", "h:1", "/1?pool_size=3")
	f.Add("redis-sentinel", "h1,h2:1", "/1?master=m&read_timeout=3s&addr=h3:1")
	f.Add("redis-cluster", "[::1],h", "?max_redirects=-1&dial_timeout=0")
	f.Add("unix", "", "/run/socket?db=1&protocol=2")
	f.Add("rediss", "h%", "?skip_verify=1&password=x")
	f.Fuzz(func(t *testing.T, scheme, hosts, tail string) {
		const secret = "quLP1fO0xG" // no part of any other text
		if strings.Contains(tail, "min_idle") {
			t.Skip("it dials at once")
		}
		for _, url := range []string{
			scheme + "://me:" + secret + "@" + hosts + tail,
			scheme + "://me:" + hosts + tail + secret + "@h",
			scheme + "://" + hosts + tail + "&password=" + secret,
			scheme + secret + "@" + hosts + tail,
		} {
			client, err := connect.Open(url)
			switch {
			case err == nil:
				if err := client.Close(); err != nil {
					t.Errorf("%q: close: %v", url, err)
				}
			case client != nil:
				t.Errorf("%q: a client and the error %v", url, err)
			case !errors.As(err, new(*connect.URLError)):
				t.Errorf("%q: %T %v", url, err, err)
			case strings.Contains(err.Error(), secret):
				t.Errorf("%q: the error tells the password: %v", url, err)
			}
		}
	})
}
