package provider

import (
	"hash/fnv"
	"math/rand/v2"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/chat"
)

// syllables are what completions are made of. Each is a token with the space behind it.
var syllables = []string{"lor", "ips", "dol", "sit", "ame", "con", "adi", "eli", "sed", "eiu", "tem", "inc", "lab",
	"mag", "ali", "qui"}

// drawing returns the generator for the completion of a request: the same request to a provider of the same seed has
// the same completion, whatever came before it.
func (p *Provider) drawing(r chat.Request) *rand.Rand {
	hash := fnv.New64a()
	for _, m := range r.Messages {
		_, _ = hash.Write([]byte(m.Content)) // never fails
	}
	return rand.New(rand.NewPCG(p.options.Seed, hash.Sum64()))
}

// length returns how many tokens a completion has: between half of the most that it may have and all of them.
func length(random *rand.Rand, most int64) int64 {
	return max(1, most/2+random.Int64N(most-most/2+1))
}

// words returns a text of a number of tokens.
func words(random *rand.Rand, tokens int64) string {
	var text strings.Builder
	for range tokens {
		text.WriteString(syllables[random.IntN(len(syllables))])
		text.WriteByte(' ')
	}
	return text.String()
}
