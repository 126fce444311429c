package wire_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/wire"
)

// TestSettingsAreRead: the settings of the control key and of a scope key's first line. What is foreign or not
// set is left out.
func TestSettingsAreRead(t *testing.T) {
	t.Parallel()
	at, note := time.UnixMicro, wire.Note("ann|a;b", "50 % off")
	limits, off := "5/w60000000/1,3/r30000000/30000|0|7|"+note, "o|9|7|"+note
	setting := func(what, name, value string, until int64) wire.Setting {
		s := wire.Setting{What: what, Name: name, Value: value, At: at(7), By: "ann|a;b", Why: "50 % off"}
		if until > 0 {
			s.Until = at(until)
		}
		return s
	}
	both := "5/w60000000/1,3/r30000000/30000"
	for text, want := range map[string][]wire.Setting{
		"-": nil, "": nil, "o": nil, "o|9|7|ann": nil, "o|9|7|%zz|why": nil,
		off + ";": {setting(wire.SetMode, "", "o", 9)},
		"-;a=-:" + limits + ";b=" + off + ":-;": {
			setting(wire.SetLimits, "a", both, 0), setting(wire.SetMode, "b", "o", 9)},
	} {
		if got := wire.ReadControl(text); !reflect.DeepEqual(got, want) {
			t.Errorf("control %q: %+v, want %+v", text, got, want)
		}
	}
	for text, want := range map[string][]wire.Setting{
		"": nil, "1 2 3": nil, "1 2 3 - -": nil, "1 2 3 0|7|" + note + " -": nil,
		"1 2 3 8|7|" + note + " - 500": {setting(wire.SetPause, "a:k", "", 8)},
		"1 2 3 - " + limits:            {setting(wire.SetLimits, "a:k", both, 0)},
	} {
		if got := wire.ReadKeySettings("a:k", text); !reflect.DeepEqual(got, want) {
			t.Errorf("scope key %q: %+v, want %+v", text, got, want)
		}
	}
	if got := wire.SettingLimits(both + ",foreign"); len(got) != 2 {
		t.Errorf("limits %v", got)
	}
	if end := setting(wire.SetMode, "", "o", 9); !end.Holds(at(8)) || end.Holds(at(9)) {
		t.Error("a setting holds until its end")
	}
	for _, c := range []struct{ what, text, value, why string }{
		{wire.SetPause, "8", "", ""}, {wire.SetLimits, "5/w9/1|8|7|ann|a+reason", "5/w9/1", "a reason"},
	} {
		if s := wire.ReadWas(c.what, c.text); s.Value != c.value || !s.Until.Equal(at(8)) || s.Why != c.why {
			t.Errorf("%s %q: %+v", c.what, c.text, s)
		}
	}
}
