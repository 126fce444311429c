package worker

import (
	"sync"
	"time"
)

const (
	nonceKept  = time.Minute // as long as the throttle knows a grant by its nonce
	mostNonces = 10_000
)

// nonces remembers under which nonce a decision was asked for whose answer was
// lost, so that the task, when it comes back, is not charged a second time. What
// is forgotten costs a charge too many, never one too few.
type nonces struct {
	mu   sync.Mutex
	kept map[string]keptNonce
}

type keptNonce struct {
	nonce string
	until time.Time
}

func newNonces() *nonces { return &nonces{kept: make(map[string]keptNonce)} }

func (n *nonces) keep(job, nonce string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if len(n.kept) >= mostNonces {
		for id, k := range n.kept {
			if k.until.Before(now) {
				delete(n.kept, id)
			}
		}
	}
	if len(n.kept) < mostNonces {
		n.kept[job] = keptNonce{nonce, now.Add(nonceKept)}
	}
}

// take returns the nonce a job was last asked for with, if its answer was lost.
func (n *nonces) take(job string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	k, known := n.kept[job]
	delete(n.kept, job)
	if !known || k.until.Before(time.Now()) {
		return ""
	}
	return k.nonce
}
