package throttle

import "go.uber.org/zap"

// guarded returns options whose Observer and Share may panic: the panic is logged and goes no
// further. The goroutine that calls them works for all callers, none of which could recover the
// panic.
func (o Options) guarded() Options {
	g := &guard{observer: o.Observer, share: o.Share, log: newRateLimitedLog(o.Logger)}
	if o.Observer != nil {
		o.Observer = g
	}
	if o.Share != nil {
		o.Share = g.shareOf
	}
	return o
}

// guard is an Observer and a Share whose panics go no further.
type guard struct {
	observer Observer
	share    func(key string) int
	log      *rateLimitedLog
}

// recovered logs a panic. Each method must defer it directly, or it would recover nothing.
func (g *guard) recovered(of string) {
	if p := recover(); p != nil {
		g.log.panicked(of, p)
	}
}

// shareOf returns what Options.Share returns, and 1 if that panics.
func (g *guard) shareOf(key string) (share int) {
	defer func() {
		if p := recover(); p != nil {
			g.log.panicked("Options.Share", p)
			share = 1
		}
	}()
	return g.share(key)
}

// Decided implements Observer.
func (g *guard) Decided(d Decision) {
	defer g.recovered("Observer.Decided")
	g.observer.Decided(d)
}

// FellBack implements Observer.
func (g *guard) FellBack(o Outage) {
	defer g.recovered("Observer.FellBack")
	g.observer.FellBack(o)
}

// Called implements Observer.
func (g *guard) Called(c ScriptCall) {
	defer g.recovered("Observer.Called")
	g.observer.Called(c)
}

// Settled implements Observer.
func (g *guard) Settled(s Settlement) {
	defer g.recovered("Observer.Settled")
	g.observer.Settled(s)
}

// Paused implements Observer.
func (g *guard) Paused(p Pause) {
	defer g.recovered("Observer.Paused")
	g.observer.Paused(p)
}

// Adapted implements Observer.
func (g *guard) Adapted(a Adaptation) {
	defer g.recovered("Observer.Adapted")
	g.observer.Adapted(a)
}

// Started implements Observer.
func (g *guard) Started(l Lateness) {
	defer g.recovered("Observer.Started")
	g.observer.Started(l)
}

// PutBack implements Observer.
func (g *guard) PutBack(p PutBack) {
	defer g.recovered("Observer.PutBack")
	g.observer.PutBack(p)
}

// Ended implements Observer.
func (g *guard) Ended(e Ending) {
	defer g.recovered("Observer.Ended")
	g.observer.Ended(e)
}

// panicked logs that a function of the user has panicked, and where.
func (l *rateLimitedLog) panicked(of string, with any) {
	if left, due := l.due("panic " + of); due {
		l.logger.Error("throttle: "+of+" panicked, which changes nothing else",
			zap.Any("panic", with), zap.Stack("stack"), zap.Int("not_logged", left))
	}
}
