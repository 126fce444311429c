package completion

import "github.com/asynq-throttle/asynq-throttle/examples/internal/rig/provider"

// The scopes that count a job.
const (
	ScopeRequests = "requests" // requests to a model
	ScopeTokens   = "tokens"   // tokens of a model
	ScopeBudget   = "budget"   // tokens that a customer uses in a day
)

// keys are the keys of a request in the scopes.
type keys struct{ model, customer string }

func keysOf(r provider.Request) keys { return keys{r.Model, r.Customer} }

// Key returns the key in a scope.
func (k keys) Key(scope string) string {
	if scope == ScopeBudget {
		return k.customer
	}
	return k.model
}
