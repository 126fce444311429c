package completion

import "github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"

// The scopes that a job is counted over.
const (
	ScopeRequests = "requests" // of a model
	ScopeTokens   = "tokens"   // of a model
	ScopeBudget   = "budget"   // tokens of a customer in a day
)

// keys is what a request is counted under in each scope.
type keys struct{ model, customer string }

func keysOf(r provider.Request) keys { return keys{r.Model, r.Customer} }

// Key is the key in a scope.
func (k keys) Key(scope string) string {
	if scope == ScopeBudget {
		return k.customer
	}
	return k.model
}
