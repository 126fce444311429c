package lua_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/lua"
)

func TestCG(t *testing.T) {
	addr := os.Getenv("CG")
	if addr == "" {
		t.Skip()
	}
	n, _ := strconv.Atoi(os.Getenv("N"))
	size, _ := strconv.Atoi(os.Getenv("SIZE"))
	c := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: 60e9})
	ctx := context.Background()
	text := lua.Reserve
	if mark := os.Getenv("MARK"); mark != "" {
		i := strings.Index(text, mark)
		if i < 0 {
			t.Fatal("no mark")
		}
		text = text[:i] + "\ndo return 'x' end\n" + text[i:]
	}
	if inj := os.Getenv("INJ"); inj != "" {
		i := strings.Index(text, "-- Read.\n")
		text = text[:i] + "\nread_scopes(nil)\nlocal k = read_key('tenant:a', nil)\nspend(k, now, 1)\nsave_key(k)\nlocal kt = call('GET', prefix .. 'key:tenant:a')\n for z = 1, 100 do " + inj + " end\ndo return 'x' end\n" + text[i:]
	}
	p, r := redis.NewScript(peer), redis.NewScript(text)
	p.Load(ctx, c)
	r.Load(ctx, c)
	for i := range n {
		if size == 0 {
			p.Run(ctx, c, []string{"rate:global"}, 1000000, 1000000, 60, 1)
			p.Run(ctx, c, []string{fmt.Sprintf("rate:t%d", i*7919%1000)}, 1000, 1000, 60, 1)
			continue
		}
		args := []any{"", "1000000 5000000 2592000000", "global=e:1000000/60000000/600000;tenant=e:1000/60000000/600000;", "me", i + 1}
		for k := range size {
			tn := (i*size + k) * 7919 % 1000
			args = append(args, fmt.Sprintf("job-%d-%d", i, k), fmt.Sprintf("t%d|global:,tenant:t%d", tn, tn), "1", "1200000 -1 0 1")
		}
		if err := r.Run(ctx, c, []string{"thr:{p}:4:control"}, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	c.ShutdownNoSave(ctx)
}
