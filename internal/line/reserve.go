package line

// Job is a job that asks for a start.
type Job struct {
	ID      string
	Lane    string  // "<flow>|<scope key>,<scope key>", the scope keys sorted; "<flow>#1|..." for priority 1
	Costs   []int64 // of each scope key
	MaxWait int64   // us
	Latest  int64   // us from now until the last useful start; Never: any start is useful; negative: the last has passed
	Plan    bool
	Share   int64 // of the flow
	Advance int64 // how many more units the job asks for, for jobs of its lane that come soon
	// Bounds are how long the line of each scope key may get, 0 for any length; nil if the job may always wait.
	Bounds []Length
}

// Outcome is the kind of an Answer.
type Outcome int

// The outcomes, as the scripts number them.
const (
	Granted Outcome = iota + 1
	Booked
	Waiting
	TooLate // the earliest start is after the job's last useful start
	NeverFits
	LineFull // the job would make a line longer than its bound
)

// Answer is the decision for a job.
type Answer struct {
	Outcome Outcome
	Start   int64
	Lease   int64 // of the places that a granted job occupies: the shortest; 0 if it occupies none
	Waited  int64 // how long a granted job waited: us from its arrival to its start
	// Advance is how many units a granted job got of the advance that it asked for. Jobs of its lane may start out of
	// the advance until AdvanceEnds.
	Advance, AdvanceEnds int64
	// Uncharged are, for a granted job, the scope keys that are off.
	Uncharged []string
	Held      *Held // what held the job back
	Shadow    *Held // for a granted job, what would have held it back if scopes in shadow were enforced
	Until     int64 // until when Shadow would have held the job back
	Ahead     int64 // how many jobs come before it in its lane
	Full      *Full // with LineFull: the line that has no room
	Flows     int64 // how many flows stand under the lane's scope key under which most flows stand
}

// Held is a limit, or a pause, that holds a job back.
type Held struct {
	Key          string
	Limit        *Limit // nil: a pause holds the job back
	Origin       byte
	Used, Booked int64
}

// Reserve decides for jobs, one after the other.
func (l *Line) Reserve(now int64, settings Settings, jobs []Job) []Answer {
	l.begin(now, settings)
	// All scope keys are read before the first decision.
	for _, job := range jobs {
		for _, name := range l.lane(job.Lane).keys {
			l.key(name)
		}
	}
	answers := make([]Answer, len(jobs))
	for i, job := range jobs {
		answers[i] = l.decide(job, now+int64(i))
	}
	l.end()
	return answers
}
