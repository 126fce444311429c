package connect_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/asynq-throttle/asynq-throttle/connect"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// A program that looks at its Redis before it begins. Sentinels are
// redis-sentinel://host1:26379,host2:26379?master=name, a cluster is
// redis-cluster://host1:6379,host2:6379.
func ExampleOpen() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	url := "redis://" + server.Addr()

	client, err := connect.Open(url) // of a server, of sentinels or of a cluster
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	th, err := throttle.New("smtp", client, []throttle.Scope{
		{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerSecond(200)}},
	}, &throttle.Options{Timeout: 5 * time.Second}) // this Redis shares a machine that may be busy
	if err != nil {
		log.Fatal(err)
	}
	findings, err := inspect.New(th).Check(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	for _, finding := range findings {
		if finding.Severity != "note" {
			fmt.Println(finding)
		}
	}
	fmt.Println("ready")
	// Output: ready
}
