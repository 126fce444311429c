package lua

import (
	"strings"
	"testing"
	"testing/fstest"
)

func mapFS(files map[string]string) fstest.MapFS {
	fs := make(fstest.MapFS)
	for name, text := range files {
		fs[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return fs
}

func TestComposePutsEachIncludeOnceAndBeforeItsUser(t *testing.T) {
	t.Parallel()
	got, err := compose(mapFS(map[string]string{
		"verb.lua":      "-- header\n-- uses: a, b\nreturn a() + b()\n",
		"include/a.lua": "-- about a\n-- uses: c\nlocal function a() return c() end\n",
		"include/b.lua": "-- uses: c\nlocal function b() return c() end\n",
		"include/c.lua": "local function c() return 1 end\n",
	}), "verb")
	want := "-- header\n" +
		"local function c() return 1 end\n" +
		"-- about a\nlocal function a() return c() end\n" +
		"local function b() return c() end\n" +
		"return a() + b()\n"
	if err != nil || got != want {
		t.Errorf("got %v:\n%s\nwant:\n%s", err, got, want)
	}
}

// TestComposePutsAllAfterTheRequestIntoAFunction: names of the request are found by the functions of a script without
// a search.
func TestComposePutsAllAfterTheRequestIntoAFunction(t *testing.T) {
	t.Parallel()
	got, err := compose(mapFS(map[string]string{
		"verb.lua":            "-- header\n-- uses: request, a\nreturn a()\n",
		"include/a.lua":       "local function a() return now end\nreturn a\n",
		"include/request.lua": "local now = 1\n",
	}), "verb")
	want := "-- header\nlocal now = 1\nreturn (function()\n" +
		"local a = (function()\nlocal function a() return now end\nreturn a\nend)()\n" +
		"return a()\nend)()\n"
	if err != nil || got != want {
		t.Errorf("got %v:\n%s\nwant:\n%s", err, got, want)
	}
}

func TestComposeRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		files map[string]string
		want  []string // parts of the error's text
	}{
		"no such script": {
			map[string]string{"other.lua": ""}, []string{"verb.lua", "not exist"},
		},
		"a missing include": {
			map[string]string{"verb.lua": "-- uses: a\n"}, []string{"verb.lua", "include/a.lua", "not exist"},
		},
		"a missing include of an include": {
			map[string]string{"verb.lua": "-- uses: a\n", "include/a.lua": "-- uses: b\n"},
			[]string{"verb.lua", "include/a.lua", "include/b.lua", "not exist"},
		},
		"a doubled include": {
			map[string]string{"verb.lua": "-- uses: a, b\n-- uses: a\n", "include/a.lua": "",
				"include/b.lua": ""},
			[]string{"verb.lua", "a twice"},
		},
		"a doubled include in an include": {
			map[string]string{"verb.lua": "-- uses: a\n", "include/a.lua": "-- uses: b, b\n",
				"include/b.lua": ""},
			[]string{"include/a.lua", "b twice"},
		},
		"an include of itself": {
			map[string]string{"verb.lua": "-- uses: a\n", "include/a.lua": "-- uses: a\n"},
			[]string{"include/a.lua uses itself"},
		},
		"a circle": {
			map[string]string{"verb.lua": "-- uses: a\n", "include/a.lua": "-- uses: b\n",
				"include/b.lua": "-- uses: c\n", "include/c.lua": "-- uses: a\n"},
			[]string{"include/a.lua uses itself", "include/b.lua", "include/c.lua"},
		},
	}
	for name, test := range tests {
		got, err := compose(mapFS(test.files), "verb")
		if err == nil || got != "" {
			t.Errorf("%s: got %q, %v; want no text and an error", name, got, err)
			continue
		}
		for _, part := range append(test.want, "lua: ") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: got %q, want it to say %q", name, err, part)
			}
		}
	}
}

func TestMustComposePanicsOnABrokenFile(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("want a panic: there is no script of this name")
		}
	}()
	mustCompose("nosuchverb")
}
