package estimate_test

import (
	"fmt"
	"log"

	"github.com/asynq-throttle/asynq-throttle/estimate"
)

// The first prompts are charged what an answer may have at most on top of their own tokens,
// the later ones what such prompts have taken.
func ExampleEstimator() {
	estimator, err := estimate.New(4000, &estimate.Options{Most: 100_000})
	if err != nil {
		log.Fatal(err)
	}
	for i := range int64(30) {
		prompt := 300 + i%7*100 // tokens, known before it runs
		weight := estimator.Estimate("summarise large", prompt)
		took := prompt + 200 + i%2*20 // as the upstream says, with the answer
		estimator.Learn("summarise large", prompt, took)
		if i == 0 || i >= 28 {
			fmt.Printf("%d tokens: charged %d, took %d\n", prompt, weight, took)
		}
	}
	fmt.Println("a prompt twice as long as any:", estimator.Estimate("summarise large", 1800))
	// Output:
	// 300 tokens: charged 4300, took 500
	// 300 tokens: charged 520, took 500
	// 400 tokens: charged 620, took 620
	// a prompt twice as long as any: 2240
}
