package wire

import (
	"strings"

	"github.com/asynq-throttle/asynq-throttle/internal/line"
)

// The kinds of entries that lines.lua returns.
const (
	LinesKeys   = "keys"   // queues: Page.Queue
	LinesQueues = "queues" // of each queue named, its flows and its tags: Page.Standings
	LinesLanes  = "lanes"  // of one flow of a queue: Page.Standing
	LinesClaims = "claims" // Page.Claim
	LinesJobs   = "jobs"   // of one lane: Page.Waiter
	LinesLists  = "lists"  // of each lane named, Values.Natural and as many of Page.Waiter
	LinesJob    = "job"    // Page.Job
)

// Lines asks for a page of entries of one kind. The page begins at From and has at most Count entries.
type Lines struct {
	Kind        string
	Of          []string
	From, Count int64
}

// Arguments returns the arguments of lines.lua.
func (l Lines) Arguments() []string {
	args := append([]string{l.Kind}, l.Of...)
	return append(args, integer(l.From), integer(l.Count))
}

// ReadLines reads the arguments of lines.lua.
func ReadLines(args []string) (Lines, error) {
	if len(args) < 3 {
		return Lines{}, ErrUnreadable
	}
	page := &Values{rest: args[len(args)-2:]}
	l := Lines{Kind: args[0], Of: args[1 : len(args)-2], From: page.Integer(), Count: page.Natural()}
	return l, page.Err()
}

// Page is a page of entries that have yet to be read.
type Page struct {
	*Values
	Now  int64
	Next string // where the next page begins; empty for the last page
}

// ReadPage reads the beginning of a reply of lines.lua.
func ReadPage(reply any) *Page {
	p := &Page{Values: Array(reply)}
	p.Now, p.Next = p.Natural(), p.Text()
	return p
}

// Queue is a queue with how many flows stand in it.
type Queue struct {
	line.QueueSnapshot
	Standing int64
}

// Queue reads an entry of LinesKeys.
func (p *Page) Queue() (q Queue) {
	q.Name, q.Timer, q.Standing, q.Virtual = p.Text(), p.Natural(), p.Natural(), p.Float()
	return q
}

// Lane is a lane that stands in a queue, with how many jobs are in it, and the costs of the first.
type Lane struct {
	line.Standing
	Jobs  int64
	Costs []int64
}

// Standing reads an entry of LinesLanes.
func (p *Page) Standing() (l Lane) {
	l.Lane, l.Arrival, l.Jobs = p.Text(), p.Natural(), p.Natural()
	l.Costs = p.costs(l.Lane)
	return l
}

// Claim reads an entry of LinesClaims.
func (p *Page) Claim() line.ClaimSnapshot {
	return line.ClaimSnapshot{Key: p.Text(), At: p.Natural(), ID: p.Text()}
}

// Waiter reads a job of a lane.
func (p *Page) Waiter(lane string) line.Waiter {
	return line.Waiter{ID: p.Text(), Arrival: p.Natural(), Costs: p.costs(lane)}
}

// Job reads the state of one job.
func (p *Page) Job() line.JobState {
	return line.JobState{Slot: p.Natural(), Arrival: p.Natural(), Before: p.Integer(), Jobs: p.Natural(), Queue: p.Text(),
		Timer: p.Natural()}
}

// The prefixes of the fields of a queue's tags. The field of a finish tag is the flow's name, without a prefix.
const (
	tagVirtual = "*" // the virtual time
	tagClasses = "#" // and a flow: the tags of its priorities
	tagHadTurn = ">" // and a flow that has had its turn here and stands in another queue
)

// Tags reads the tags of a queue that LinesQueues returns, for the flows of one page.
func (p *Page) Tags(q *line.QueueSnapshot) {
	if q.Finish == nil {
		q.Finish, q.Classes = make(map[string]float64), make(map[string]line.ClassTags)
	}
	for n := p.Natural(); n > 0 && !p.wrong; n-- {
		field := p.Text()
		if flow, is := strings.CutPrefix(field, tagClasses); is {
			q.Classes[flow] = p.classTags()
			continue
		}
		tag := p.Float()
		switch flow := field[min(1, len(field)):]; {
		case field == tagVirtual:
			q.Virtual = tag
		case strings.HasPrefix(field, tagHadTurn):
			q.HadTurn = append(q.HadTurn, flow)
		default:
			q.Finish[field] = tag
		}
	}
}

// classTags reads "virtual tag tag", with a tag for each priority from 0 on.
func (p *Page) classTags() (tags line.ClassTags) {
	list := &Values{rest: strings.Fields(p.Text())}
	tags.Virtual = list.Float()
	for i := 0; list.More() && i < len(tags.Tags); i++ {
		tags.Tags[i] = list.Float()
	}
	p.wrong = p.wrong || list.wrong || list.More()
	return tags
}
