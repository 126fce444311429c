package prompt

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Work says how many prompts are asked, by whom and when.
type Work struct {
	Jobs      int
	Customers int
	Seed      uint64
	Over      time.Duration // the time in which interactive prompts arrive
}

// Prompts draws the prompts of some work, by their arrival: the same for the same work. A third of them is interactive
// and arrives at random; the others are there at the beginning. Every third of the others belongs to the first
// customer, in addition to its part of the rest.
func (w Work) Prompts() []*Prompt {
	random := rand.New(rand.NewPCG(w.Seed, 0))
	all := make([]*Prompt, w.Jobs)
	for i := range all {
		p := &Prompt{ID: fmt.Sprintf("p%04d", i), Kind: Batch}
		if i%3 == 0 {
			p.Kind = Interactive
		}
		p.Customer = customer(w.customerOf(i, random))
		w.fill(p, random)
		all[i] = p
	}
	slices.SortStableFunc(all, func(a, b *Prompt) int { return cmp.Compare(a.At, b.At) })
	return all
}

// customerOf returns the number of the customer who asks the i-th prompt.
func (w Work) customerOf(i int, random *rand.Rand) int {
	if i%6 == 1 {
		return 0
	}
	return random.IntN(w.Customers)
}

// The lengths of prompts, in sentences, and the most tokens of their answers.
const (
	leastQuestion, mostQuestion   = 2, 6
	leastText, mostText           = 25, 45
	leastAnswer, mostAnswer       = 100, 200
	leastSummary, mostSummary     = 200, 300
	questionBegins, summaryBegins = "Answer in two sentences: ", "Summarise in five sentences: "
)

// fill draws the text of a prompt, and when it arrives.
func (w Work) fill(p *Prompt, random *rand.Rand) {
	between := func(least, most int) int { return least + random.IntN(most-least+1) }
	if p.Kind == Interactive {
		p.At = time.Duration(random.Int64N(int64(w.Over) + 1))
		p.Text = questionBegins + text(random, between(leastQuestion, mostQuestion))
		p.MaxTokens = int64(between(leastAnswer, mostAnswer))
		return
	}
	p.Text = summaryBegins + text(random, between(leastText, mostText))
	p.MaxTokens = int64(between(leastSummary, mostSummary))
}

// sentences are what texts are made of.
var sentences = []string{
	"The parcel was sent on Monday, and the customer has not seen it since.",
	"She asks whether the second invoice is a mistake, since she has paid the first one already.",
	"After the update the lamp blinks three times and goes dark.",
	"He would like to keep the old price until the end of the year.",
	"The driver says that nobody opened, but there was somebody at home all day.",
	"Two of the four chairs came without their screws.",
	"They have moved, and both addresses are still in the account.",
	"The coupon was valid until midnight, but in which time zone?",
	"It works in the browser, but not on the phone.",
	"Our support has told her to wait for five working days, which are over.",
}

// text returns a number of sentences.
func text(random *rand.Rand, number int) string {
	drawn := make([]string, number)
	for i := range drawn {
		drawn[i] = sentences[random.IntN(len(sentences))]
	}
	return strings.Join(drawn, " ")
}

// names are the names of the first customers.
var names = []string{"acme", "globex", "initech", "hooli", "vandelay", "wonka"}

// customer returns the name of a customer.
func customer(number int) string {
	if number < len(names) {
		return names[number]
	}
	return fmt.Sprintf("customer-%d", number)
}
