package stf_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/stf"
)

func TestSyntaxErrors(t *testing.T) {
	for line, want := range map[string]string{
		"teleport 1 2":                       `unknown command "teleport"`,
		"packet":                             "packet without a port",
		"packet x 00":                        `"x" is not a port number`,
		"packet 1 0g":                        "not a hexadecimal digit",
		"packet 1 000":                       "odd number of digits",
		"packet 1 0*":                        "no * and no $",
		"packet 1 00$":                       "no * and no $",
		"expect -1 00":                       "not a port number",
		"expect 1 zz":                        "not a hexadecimal digit",
		"add":                                "expected a name",
		"add t k:1":                          "expected a name",
		"add t k:1 act":                      "no ( after",
		"add t k:1 act(":                     "no ) after",
		"add t k:1 act(x)":                   "is not NAME:VALUE",
		"add t k:1 act() = ":                 "expected a name",
		"add t k:1 act() more":               `"more" at the end of the line`,
		`add "t k:1 act()`:                   "a quote that does not end",
		"setdefault t":                       "expected a name",
		"remove t":                           `only "remove all" is known`,
		"check_counter c":                    "no (INDEX) after",
		"check_counter c(1) litres == 1":     "neither packets nor bytes",
		"check_counter c(1) packets ~ 1":     "not a comparison",
		"check_counter c(1) packets ==":      "expected a comparison and a number",
		"check_register r(1)":                "expected a comparison and a number",
		"register_write r 1":                 "expected an index and a value",
		"counter_write c 1 2":                "2 numbers, expected 3",
		"mirroring_add 1":                    "1 numbers, expected 2",
		"mirroring_add a b":                  `"a" is not a number`,
		"mc_node_create":                     "0 numbers, expected 1",
		"meter_set_rates m 1 0.5:1":          "1 rates instead of two",
		"meter_set_rates m 1 0.5 0.5:1":      "is not RATE:BURST",
		"meter_array_set_rates m -1:1 0.5:1": "is not RATE:BURST",
		"clock":                              "0 numbers, expected 1",
	} {
		_, err := stf.Parse("f.stf", []byte("# first\n\n"+line+" # why\n"))
		var se *stf.SyntaxError
		if !errors.As(err, &se) || se.Line != 3 || !strings.Contains(se.Msg, want) {
			t.Errorf("%q: %v, want %q in line 3", line, err, want)
		}
	}
}

// TestCommandErrors runs commands that are syntactically correct but do not fit the program.
func TestCommandErrors(t *testing.T) {
	for line, want := range map[string]string{
		"add nope k:1 set(v:1)":                                  `no table is called "nope"`,
		"add _t h.k.a:1 set(v:1)":                                `may be table`,
		"add exact_t h.k.nope:1 toss()":                          "has no key",
		"add exact_t h.k.a:0x10000 toss()":                       "does not fit 16 bits",
		"add exact_t h.k.a:0x1* toss()":                          "digits that do not matter",
		"add exact_t h.k.a:one toss()":                           `"one" is not a number`,
		"add exact_t h.k.a:1 nope()":                             `called "nope"`,
		"add exact_t h.k.a:1 counted()":                          `without its parameter "v"`,
		"add exact_t h.k.a:1 counted(w:1)":                       `has no parameter "w"`,
		"add exact_t h.k.a:1 counted(v:256)":                     "does not fit 8 bits",
		"add ternary_t 1 h.k.b:1* set(v:1)":                      "a * in the decimal number",
		"add lpm_t h.k.b:1/x set(v:1)":                           "invalid syntax",
		"add const_t h.k.a:1 set(v:1)":                           "immutable",
		"setdefault nope set(v:1)":                               `no table is called "nope"`,
		"check_counter nope(1) packets == 1":                     `no counter is called "nope"`,
		"check_counter hits(ONE) packets == 1":                   "neither an index nor the ID",
		"check_register nope(1) == 1":                            `no register is called "nope"`,
		"meter_set_rates nope 1 0:1 0:1":                         `no meter is called "nope"`,
		"value_set nope 1":                                       `no value set is called "nope"`,
		"mc_node_associate 1 0":                                  "there is no group 1",
		"mirroring_delete 7":                                     "not found",
		"mirroring_add 99999 1":                                  "out of range",
		"add range_t h.k.a:5->1 set(v:1)":                        "is empty",
		"add exact_t h.k.a:1 toss()\nadd exact_t h.k.a:1 toss()": "already exists",
	} {
		_, err := run(t, "tables", line)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
}

func run(t *testing.T, program, text string) ([]string, error) {
	t.Helper()
	prog, err := bmv2json.ReadFile(filepath.Join("testdata", program+".json"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := stf.Parse("f.stf", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p, err := interp.New(prog, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return stf.Run(f, stf.Interp(p))
}

// TestDifferences states one wrong expectation at a time, and checks the runner's message.
func TestDifferences(t *testing.T) {
	const chosen = "packet 0 08 0003 00000000 00 000000000000000000\n"
	const left = "00d3 08 0003 00000000 00 000000000000000000"
	for _, tt := range []struct{ text, want string }{
		{chosen + "expect 1 " + left, ""},
		{chosen + "expect 1 " + left + "$", ""},
		{chosen + "expect 1 **D3 0*", ""},
		{chosen + "expect 1", ""},
		{chosen, ""}, // the file does not name port 1
		{chosen + "expect 1 00d4",
			"f.stf:2: frame 1 on port 1 (after line 1) differs at byte 1: 0xd3"},
		{chosen + "expect 1 00d3$", "has 19 bytes instead of 2"},
		{chosen + "expect 1 " + left + "00", "has 19 bytes, fewer than the 20 expected"},
		{chosen + "expect 2", "f.stf:2: expected frame 1 on port 2, only 0 left"},
		{chosen + chosen + "expect 1 00d3",
			"f.stf:2: a frame that was not expected left by port 1"},
		{chosen + "no_packet", "f.stf:2: a frame left by port 1"},
		{"add exact_t h.k.a:1 counted(v:1) = X\ncheck_counter hits(X) packets > 0",
			"counter I.hits(X) has 0 packets, not > 0"},
		{"add exact_t h.k.a:1 counted(v:1) = X\ncheck_counter hits($X) bytes <= 0", ""},
		{"add exact_t h.k.a:1 toss()\nremove all\nadd exact_t h.k.a:1 toss()", ""},
		{"wait\ncheck_counter hits(X)", "error"},
	} {
		diffs, err := run(t, "tables", tt.text)
		if (err != nil) != (tt.want == "error") {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		got := strings.Join(diffs, "\n")
		if err == nil && (tt.want == "" && got != "" || !strings.Contains(got, tt.want)) {
			t.Errorf("%q: says %q, want %q", tt.text, got, tt.want)
		}
	}
}

// TestCommand runs the command netcraq-stf, and checks its exit code and output.
func TestCommand(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "netcraq-stf")
	if out, err := exec.Command("go", "build", "-o", bin,
		"../cmd/netcraq-stf").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wrong := filepath.Join(t.TempDir(), "wrong.stf")
	if err := os.WriteFile(wrong, []byte("packet 0 08\nexpect 1 ff\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"testdata/tables.json", "testdata/tables.stf"}, 0, ""},
		{[]string{"testdata/tables.json", wrong}, 1, "wrong.stf:2: frame 1 on port 1"},
		{[]string{"testdata/tables.json"}, 2, "usage: netcraq-stf"},
		{[]string{"testdata/none.json", wrong}, 2, "no such file"},
		{[]string{"testdata/tables.json", "testdata/none.stf"}, 2, "no such file"},
		{[]string{"testdata/tables.json", "testdata/tables.json"}, 2, "unknown command"},
		{[]string{"testdata/tables.stf", wrong}, 2, "not JSON"},
		{[]string{"-v", "testdata/stateful.json", "testdata/stateful.stf"}, 0, "index 4660 value"},
	} {
		out, err := exec.Command(bin, tt.args...).CombinedOutput()
		code := 0
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			code = ee.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != tt.code || !strings.Contains(string(out), tt.want) {
			t.Errorf("%v ends with %d and says %q, want %d and %q", tt.args, code, out, tt.code,
				tt.want)
		}
	}
}
