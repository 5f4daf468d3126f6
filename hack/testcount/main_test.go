package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRun(t *testing.T) {
	cases := map[string]struct {
		events string
		checks string
		want   string
	}{
		"a test": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p"}`,
			want: "1 passed, 0 failed\n",
		},
		"subtests instead of their parent": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"run","Package":"p","Test":"TestA/one"}
				{"Action":"run","Package":"p","Test":"TestA/two"}
				{"Action":"pass","Package":"p","Test":"TestA/one"}
				{"Action":"pass","Package":"p","Test":"TestA/two"}
				{"Action":"pass","Package":"p","Test":"TestA"}`,
			want: "2 passed, 0 failed\n",
		},
		"a subtest with a slash in its name": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"run","Package":"p","Test":"TestA/disk/one"}
				{"Action":"pass","Package":"p","Test":"TestA/disk/one"}
				{"Action":"pass","Package":"p","Test":"TestA"}`,
			want: "1 passed, 0 failed\n",
		},
		"a subtest that failed": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"run","Package":"p","Test":"TestA/one"}
				{"Action":"run","Package":"p","Test":"TestA/two"}
				{"Action":"pass","Package":"p","Test":"TestA/one"}
				{"Action":"fail","Package":"p","Test":"TestA/two"}
				{"Action":"fail","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p"}`,
			want: "failed: p TestA/two (1)\n1 passed, 1 failed\n",
		},
		"a test that failed after its subtests": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"run","Package":"p","Test":"TestA/one"}
				{"Action":"pass","Package":"p","Test":"TestA/one"}
				{"Action":"fail","Package":"p","Test":"TestA"}`,
			want: "failed: p TestA (1)\n1 passed, 1 failed\n",
		},
		"specs instead of their suite": {
			events: `{"Action":"run","Package":"p","Test":"TestSuite"}
				{"Action":"output","Package":"p","Test":"TestSuite","Output":"\u001b[38;5;10m\u001b[1mSUCCESS!\u001b[0m -- \u001b[1m12 Passed\u001b[0m | \u001b[1m0 Failed\u001b[0m | \u001b[1m0 Pending\u001b[0m | \u001b[1m0 Skipped\u001b[0m\n"}
				{"Action":"pass","Package":"p","Test":"TestSuite"}`,
			want: "12 passed, 0 failed\n",
		},
		"a spec that failed and one that was skipped": {
			events: `{"Action":"run","Package":"p","Test":"TestSuite"}
				{"Action":"output","Package":"p","Test":"TestSuite","Output":"FAIL! -- 10 Passed | 1 Failed | 0 Pending | 1 Skipped\n"}
				{"Action":"fail","Package":"p","Test":"TestSuite"}
				{"Action":"fail","Package":"p"}`,
			want: "failed: p TestSuite (2)\n10 passed, 2 failed\n",
		},
		"a suite whose preparation failed": {
			events: `{"Action":"run","Package":"p","Test":"TestSuite"}
				{"Action":"output","Package":"p","Test":"TestSuite","Output":"FAIL! -- 0 Passed | 0 Failed | 0 Pending | 0 Skipped\n"}
				{"Action":"fail","Package":"p","Test":"TestSuite"}`,
			want: "failed: p TestSuite (1)\n0 passed, 1 failed\n",
		},
		"a test that was skipped": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"skip","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p"}`,
			want: "skipped: p TestA (1)\n0 passed, 1 failed\n",
		},
		"a test that a panic ended": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p"}`,
			want: "not ended: p TestA (1)\n0 passed, 1 failed\n",
		},
		"a package that does not compile": {
			events: `{"ImportPath":"p","Action":"build-fail"}
				{"Action":"fail","Package":"p","FailedBuild":"p"}`,
			want: "failed: p\n0 passed, 1 failed\n",
		},
		"a suite that passed when it was run again": {
			events: `{"Action":"run","Package":"p","Test":"TestSuite"}
				{"Action":"output","Package":"p","Test":"TestSuite","Output":"  \u001b[38;5;9m[FAIL]\u001b[0m \u001b[0mA thing \u001b[38;5;9m[It] works\u001b[0m\n"}
				{"Action":"output","Package":"p","Test":"TestSuite","Output":"FAIL! -- 2 Passed | 1 Failed | 0 Pending | 0 Skipped\n"}
				{"Action":"fail","Package":"p","Test":"TestSuite"}
				{"Action":"fail","Package":"p"}
				{"Action":"run","Package":"p","Test":"TestSuite"}
				{"Action":"output","Package":"p","Test":"TestSuite","Output":"SUCCESS! -- 3 Passed | 0 Failed | 0 Pending | 0 Skipped\n"}
				{"Action":"pass","Package":"p","Test":"TestSuite"}
				{"Action":"pass","Package":"p"}`,
			want: "flaky: p TestSuite A thing [It] works\n3 passed, 0 failed\n",
		},
		"a test that failed again": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p"}
				{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p","Test":"TestA"}
				{"Action":"fail","Package":"p"}`,
			want: "failed: p TestA (1)\n0 passed, 1 failed\n",
		},
		"checks": {
			events: `{"Action":"run","Package":"p","Test":"TestA"}
				{"Action":"pass","Package":"p","Test":"TestA"}`,
			checks: "pass\nfail\npass\n",
			want:   "3 passed, 1 failed\n",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			events := write(t, filepath.Join(dir, "events"), c.events)
			checks := ""
			if c.checks != "" {
				checks = write(t, filepath.Join(dir, "checks"), c.checks)
			}
			var out bytes.Buffer
			if _, err := run(checks, "", []string{events}, &out); err != nil {
				t.Fatal(err)
			}
			if out.String() != c.want {
				t.Errorf("got\n%s\nwant\n%s", out.String(), c.want)
			}
		})
	}
}

func TestRunRefusesWhatIsNoEvent(t *testing.T) {
	file := write(t, filepath.Join(t.TempDir(), "events"), "FAIL\n")
	_, err := run("", "", []string{file}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "parsing event") {
		t.Errorf("got %v", err)
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestTable(t *testing.T) {
	dir := t.TempDir()
	events, table := filepath.Join(dir, "events"), filepath.Join(dir, "table")
	lines := `{"Action":"run","Package":"p","Test":"TestA"}
		{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.5}
		{"Action":"pass","Package":"p","Elapsed":61.6}
		{"Action":"skip","Package":"without tests"}
		{"Action":"fail","Package":"q","Elapsed":2}`
	if err := os.WriteFile(events, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run("", table, []string{events}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	const want = "| package | passed | failed | seconds |\n|---|---|---|---|\n| p | 1 | 0 | 62 |\n| q | 0 | 1 | 2 |\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
