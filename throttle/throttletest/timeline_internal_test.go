package throttletest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const aTimeline = "timeline one\nscope global: 1/10s\n0s reserve a -> granted 0s\n"

// TestReadTimelines: an error begins with the number of the line that cannot be read, and says what is wrong with it.
func TestReadTimelines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0s reserve a -> granted 0s":                 "t:1: a file begins with a timeline",
		"timeline one\n0s pull -> nothing":           `t:2: the timeline "one" has no scope`,
		"timeline one\nscope global\n\ntimeline two": `t:4: the timeline "one" has no step`,
		"timeline one\nscope":                        "t:2: a scope has no name",
		"timeline one\nscope a wide: 1/10s":          `t:2: no word "wide" here, only cooldown, mode, optional, `,
		"timeline one\nscope a: 1":                   `t:2: throttle: limit "1": want units/window`,
		"timeline one\nscope a; lookahead":           "t:2: lookahead has no value",
		"timeline one\nscope a; grace 5":             "t:2: grace: time: missing unit in duration",
		"timeline one\nscope a; share b":             "t:2: share: want a name and a value such as b=2",
		"timeline one\nscope a; b c":                 `t:2: no word "b" here, only grace, lookahead, `,
		"timeline one\nscope a\n-> more":             "t:3: no step comes before this answer",
		aTimeline + "1s reserve a":                   "t:4: a step has its answer behind ->",
		aTimeline + "1s -> x":                        "t:4: a step has a call behind its time",
		aTimeline + "1 pull -> x":                    "t:4: time: missing unit in duration",
		aTimeline + "1s resrve a -> x":               `t:4: no call "resrve": the calls are cancel, count, done, `,
		aTimeline + "1s reserve -> x":                "t:4: reserve names no job",
		aTimeline + "1s usage -> x":                  "t:4: usage names no scope",
		aTimeline + "1s pull weight 1 -> x":          `t:4: no word "weight" here, only none`,
		aTimeline + "1s refund a tenant=a -> x":      `t:4: no word "tenant=a" here, only nonce`,
		aTimeline + "1s reserve a weight -> x":       "t:4: weight has no value",
		aTimeline + "1s reserve a weight light -> x": "t:4: weight: strconv.ParseInt",
		aTimeline + "1s limits global -> x":          `t:4: throttle: limit "": want units/window`,
		aTimeline + "1s mode global: on -> x":        "t:4: throttle: ",
		aTimeline + "1s pull: 3/10s -> x":            "t:4: pull has no setting behind a colon",
		aTimeline + "scope tenant: 1/10s":            "t:4: want a step: a time, a call, -> and the answer",
	} {
		if _, err := readTimelines("t", text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s…", text, err, want)
		}
	}
}

// TestWrongAnswer: a step with an unexpected answer is reported by its file and line, and the timeline goes on.
func TestWrongAnswer(t *testing.T) {
	t.Parallel()
	read, err := readTimelines("t", aTimeline+"# not read\n1s  reserve b -> booked 11s, # nor this\n -> global 1/10s\n"+
		"1s  usage  global -> 1 used, 1 booked,\n-> free 20s\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{`t:5: 1s reserve b: got "booked 10s, global 1/10s", want "booked 11s, global 1/10s"`}
	options := read[0].options
	options.Lookahead = farthest
	if diff := cmp.Diff(want, read[0].play(NewModel(read[0].scopes, options))); diff != "" {
		t.Error(diff)
	}
}

// FuzzReadTimelines: a timeline that was read can be played, and an error names the file and a line.
func FuzzReadTimelines(f *testing.F) {
	for _, seed := range []string{"", "timeline", aTimeline, aTimeline + "timeline",
		"timeline a\nscope b c=d: 1/s; share e=", aTimeline + "9h59m peek b tenant=a cost tenant=2 plan -> \n -> x",
		aTimeline + "1s limits tenant=a until 2s: 0/1s -> done", aTimeline + "1s mode throttle: off -> done",
		aTimeline + "1s leave a b -> ", aTimeline + "1s: -> : #"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read, err := readTimelines("t", text)
		if err != nil && !strings.HasPrefix(err.Error(), "t:") {
			t.Errorf("%q: %v", text, err)
		}
		for _, line := range read {
			if len(line.scopes) == 0 || len(line.steps) == 0 {
				t.Errorf("%q: %+v", text, line)
			}
			for _, s := range line.steps {
				if s.call.play == nil {
					t.Errorf("%q: no call in %q", text, s.text)
				}
			}
		}
	})
}
