package parquet

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	_ "github.com/duckdb/duckdb-go/v2"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

const name = "shop/p1/0011223344556677"

// lake is a destination with its last known state.
type lake struct {
	t *testing.T
	*Sink
	known exactlyonce.State
}

func open1(t *testing.T, path string) *lake {
	t.Helper()
	s, err := NewSink(pipeletapi.Parquet{Path: path}, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	l := &lake{t: t, Sink: s}
	l.again()
	return l
}

func (l *lake) again() {
	l.t.Helper()
	var err error
	if l.known, err = l.Open(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
}

// put commits rows on top of the known state.
func (l *lake) put(rows ...endpoint.Row) error {
	next := exactlyonce.State{Rows: l.known.Rows + uint64(len(rows))}
	next.Position = exactlyonce.Position{Epoch: "e", Seq: l.known.Position.Seq + 1}
	err := l.Commit(l.t.Context(), l.known, next, rows)
	if err == nil {
		l.known = next
	}
	return err
}

func (l *lake) must(rows ...endpoint.Row) {
	l.t.Helper()
	if err := l.put(rows...); err != nil {
		l.t.Fatal(err)
	}
}

func row(key, value string) endpoint.Row { return endpoint.Row{Key: key, Value: []byte(value)} }

// files returns the names of the files in the pipelet's folder, except for the lock file.
func (l *lake) files() (names []string) {
	l.t.Helper()
	all, err := os.ReadDir(l.folder)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, e := range all {
		if e.Name() != lockName {
			names = append(names, strings.TrimLeft(e.Name(), "0"))
		}
	}
	return names
}

// read returns all records of a source after a position. It reads at most most records at a time.
func read(t *testing.T, s *Source, from exactlyonce.Position, most int) (all []endpoint.Record) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		records, at, err := s.Read(ctx, from, most)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		if len(records) == 0 {
			return all
		}
		if len(records) > most || at != records[len(records)-1].At {
			t.Fatalf("%d records of at most %d, at %v", len(records), most, at)
		}
		all, from = append(all, records...), at
	}
}

func text(records []endpoint.Record) string {
	var all []string
	for _, r := range records {
		switch {
		case r.Deleted:
			all = append(all, r.Key+"-")
		default:
			all = append(all, r.Key+"="+string(r.Value))
		}
	}
	return strings.Join(all, " ")
}

// TestRoundTrip checks that DuckDB reads the written files, and that a source reads them from each
// position.
func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	l := open1(t, dir)
	l.must()
	l.must(row("a", "1"), row("b", "\xff\x00"), endpoint.Row{Key: "c", Deleted: true})
	l.must()
	l.must()
	l.must(row("a", ""), row("d", "vier"))
	l.must()
	if got := strings.Join(l.files(), " "); got != "1.parquet 2.parquet 3.parquet" {
		t.Errorf("the files are %s: those without rows do not add up", got)
	}
	s, err := NewSource(pipeletapi.Parquet{Path: l.folder})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const want = "a=1 b=\xff\x00 c- a= d=vier"
	all := read(t, s, exactlyonce.Position{}, 2)
	if text(all) != want {
		t.Fatalf("%q, want %q", text(all), want)
	}
	for i, r := range all {
		if got, want := text(read(t, s, r.At, 3)), text(all[i+1:]); got != want {
			t.Errorf("behind %v: %q, want %q", r.At, got, want)
		}
		if i > 0 && r.Version <= all[i-1].Version {
			t.Errorf("the versions do not grow: %d, %d", all[i-1].Version, r.Version)
		}
	}
	// A source also sees later rows. This includes the rows of a file that replaces the last file,
	// if that has no rows.
	l.must(row("e", "5"))
	if got := text(read(t, s, all[len(all)-1].At, 10)); got != "e=5" {
		t.Errorf("later: %q", got)
	}
	l.again()
	if l.known.Rows != 6 || l.known.Position.Seq != 7 {
		t.Errorf("the position is %+v", l.known)
	}
	db, err := sql.Open("duckdb", "")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n, sum int
	var keys string
	err = db.QueryRow(fmt.Sprintf(`SELECT count(*), sum(TRY_CAST(value AS INT)), string_agg(key, '' ORDER BY filename,
		file_row_number) FROM read_parquet('%s/**/*.parquet', filename = true, file_row_number = true)
		WHERE NOT deleted`, dir)).Scan(&n, &sum, &keys)
	if err != nil || n != 5 || sum != 6 || keys != "abade" {
		t.Errorf("DuckDB: %d rows, sum %d, keys %s, %v", n, sum, keys, err)
	}
}

// TestConflict checks that of two workers one writes, and the other gets a Conflict, whether or not
// the batch has rows.
func TestConflict(t *testing.T) {
	dir := t.TempDir()
	a, b := open1(t, dir), open1(t, dir)
	conflict := func(l *lake) {
		t.Helper()
		before := l.files()
		if err := l.put(row("x", "x")); exactlyonce.KindOf(err) != exactlyonce.Conflict {
			t.Fatalf("%v, want a conflict", err)
		}
		if !slices.Equal(before, l.files()) {
			t.Errorf("there was %v, and is %v", before, l.files())
		}
		l.again()
	}
	a.must()
	conflict(b) // b's commit conflicts, because b began before the first file was written
	a.must()    // writes a file that replaces the file without rows
	conflict(b)
	b.must(row("x", "1"))
	conflict(a)
	a.must()
	a.must()
	a.must(row("y", "1")) // a writes the file with the number that b considers free
	conflict(b)
	b.must()
	// Check a folder that was emptied, and then a folder that was created again.
	if err := os.RemoveAll(filepath.Join(dir, "shop")); err != nil {
		t.Fatal(err)
	}
	// b's commit conflicts, because b must open the folder again
	if err := b.put(row("z", "1")); exactlyonce.KindOf(err) != exactlyonce.Conflict {
		t.Errorf("without its folder: %v", err)
	}
	b.again()
	if b.known != (exactlyonce.State{}) {
		t.Errorf("a new folder knows %+v", b.known)
	}
	b.must(row("z", "1"))
	conflict(a)
}

// TestLock checks that a worker waits for the lock, which ends when the process that holds it ends.
// The worker then removes the unfinished files of the dead worker.
func TestLock(t *testing.T) {
	l := open1(t, t.TempDir())
	l.must(row("a", "1"))
	left := filepath.Join(l.folder, temporary+"123")
	if err := os.WriteFile(left, []byte("PAR1"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := os.Open(filepath.Join(l.folder, lockName))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(h.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Open(ctx); exactlyonce.KindOf(err) != exactlyonce.Temporary || !strings.Contains(err.Error(), "lock") {
		t.Errorf("%v, want that another one has the lock", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { h.Close() })
	l.must(row("b", "1"))
	l.again()
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was left is there: %v", err)
	}
}

// TestFullDisk checks that a full disk, a read-only disk and an unmounted disk are reported
// clearly. No part of the batch may become visible. The worker must continue when the cause is
// gone.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if _, err := NewSink(pipeletapi.Parquet{Path: dir}, name); err != nil {
		t.Fatal(err)
	}
	none, err := NewSink(pipeletapi.Parquet{Path: filepath.Join(dir, "none")}, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Open(t.Context()); exactlyonce.KindOf(err) != exactlyonce.Refused ||
		!strings.Contains(err.Error(), "make it") {
		t.Errorf("without a folder: %v", err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skip("a full disk needs the right to mount one: ", err)
	}
	defer syscall.Unmount(dir, syscall.MNT_DETACH)
	l := open1(t, dir)
	l.must(row("a", "1"))
	noise := make([]byte, 300<<10)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	refused := func(want string) {
		t.Helper()
		err := l.put(row("b", string(noise)))
		if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if got := strings.Join(l.files(), " "); got != "1.parquet" {
			t.Errorf("there is %s", got)
		}
	}
	remount := func(flags uintptr, data string) {
		t.Helper()
		l.Close()
		if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT|flags, data); err != nil {
			t.Fatal(err)
		}
	}
	refused("disk is full")
	remount(syscall.MS_RDONLY, "size=1m")
	refused("read-only")
	remount(0, "size=1m")
	l.must(row("b", string(noise)))
	l.again()
	if l.known.Rows != 2 {
		t.Errorf("%+v", l.known)
	}
}

// other writes a file as programs other than NetCRAQ do.
func other(t *testing.T, file string, fields []arrow.Field, fill func(*array.RecordBuilder)) {
	t.Helper()
	sc := arrow.NewSchema(fields, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	defer b.Release()
	fill(b)
	batch := b.NewRecordBatch()
	defer batch.Release()
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	// Like other libraries, this writer stores its in-memory schema in the footer.
	w, err := pqarrow.NewFileWriter(sc, out, nil, pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err == nil {
		err = w.Write(batch)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSchemaChanges checks that a source stops at a file with a changed schema, and reports it
// clearly. The source continues when the file is fixed. Files of other programs need only a key and
// a value.
func TestSchemaChanges(t *testing.T) {
	dir := t.TempDir()
	at := func(n uint64) string { return numbered(dir, n) }
	key := arrow.Field{Name: "key", Type: arrow.BinaryTypes.String}
	good := []arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "value", Type: arrow.BinaryTypes.Binary,
		Nullable: true}, key}
	write := func(n uint64, keys ...string) {
		other(t, at(n), good, func(b *array.RecordBuilder) {
			for _, k := range keys {
				b.Field(0).(*array.Int64Builder).Append(7)
				b.Field(1).(*array.BinaryBuilder).Append([]byte("v" + k))
				b.Field(2).(*array.StringBuilder).Append(k)
			}
		})
	}
	s, err := NewSource(pipeletapi.Parquet{Path: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	refused := func(from exactlyonce.Position, want string) {
		t.Helper()
		_, _, err := s.Read(t.Context(), from, 10)
		if exactlyonce.KindOf(err) != exactlyonce.Refused || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	other(t, filepath.Join(dir, "1.parquet"), good, func(*array.RecordBuilder) {})
	refused(exactlyonce.Position{}, "digits")
	write(3, "a", "b")
	all := read(t, s, exactlyonce.Position{}, 10)
	if text(all) != "a=va b=vb" {
		t.Fatalf("%q", text(all))
	}
	from := all[1].At
	for want, fields := range map[string][]arrow.Field{
		"0 columns key":             {{Name: "value", Type: arrow.BinaryTypes.String}},
		"type int64":                {key, {Name: "value", Type: arrow.PrimitiveTypes.Int64}},
		"neither a column value":    {key},
		"deleted is of the type":    {key, {Name: "value", Type: arrow.BinaryTypes.String}, {Name: "deleted", Type: arrow.BinaryTypes.String}},
		"column key is of the type": {{Name: "key", Type: arrow.PrimitiveTypes.Float64}, {Name: "value", Type: arrow.BinaryTypes.String}},
	} {
		other(t, at(4), fields, func(*array.RecordBuilder) {})
		refused(from, want)
	}
	if err := os.WriteFile(at(4), []byte("PAR1 and then nothing PAR1"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(from, "cannot be read as Parquet")
	write(4, "c")
	if got := text(read(t, s, from, 10)); got != "c=vc" {
		t.Errorf("put right: %q", got)
	}
	// Files that were read may be deleted, but other files may not.
	for _, n := range []uint64{3, 4} {
		os.Remove(at(n))
	}
	s.Close()
	write(5, "d")
	refused(from, "put them back")
	write(4, "c")
	if got := text(read(t, s, from, 10)); got != "c=vc d=vd" {
		t.Errorf("with file 3 deleted: %q", got)
	}
	// This position belongs to another folder.
	from.Epoch = "other"
	refused(from, "another name")
	from.Epoch, from.Seq, from.Sub = "", 4, "17"
	refused(from, "no row of")
}

// TestLibraries checks that Parquet's own type decides whether a column is text or bytes. The
// in-memory type of the library that wrote the file may be in the footer, but must not matter.
func TestLibraries(t *testing.T) {
	add := func(b array.Builder) {
		if err := b.AppendValueFromString("eHg="); err != nil { // the text is the bytes in base64
			t.Fatal(err)
		}
	}
	for _, typ := range []arrow.DataType{arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString,
		arrow.BinaryTypes.LargeBinary, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32,
			ValueType: arrow.BinaryTypes.String}, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint32,
			ValueType: arrow.BinaryTypes.Binary}} {
		for _, c := range []string{"value", "bytes"} {
			dir := t.TempDir()
			other(t, numbered(dir, 1), []arrow.Field{{Name: "key", Type: typ}, {Name: c, Type: typ, Nullable: true}},
				func(b *array.RecordBuilder) {
					for i := range 2 {
						add(b.Field(0))
						if i == 0 {
							add(b.Field(1))
						} else {
							b.Field(1).AppendNull()
						}
					}
				})
			s, err := NewSource(pipeletapi.Parquet{Path: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			records, _, err := s.Read(t.Context(), exactlyonce.Position{}, 10)
			if err != nil || len(records) != 2 || text(records[1:]) != records[0].Key+"-" || len(records[0].Value) == 0 {
				t.Errorf("%s in %s: %q, %v", typ, c, text(records), err)
			}
		}
	}
}

// TestDamaged checks that a damaged file is refused or yields other records, but never crashes the
// process.
func TestDamaged(t *testing.T) {
	dir := t.TempDir()
	l := open1(t, dir)
	var rows []endpoint.Row
	for i := range 200 {
		rows = append(rows, row(fmt.Sprint("key", i), strings.Repeat("v", i)))
	}
	l.must(rows...)
	name := numbered(l.folder, 1)
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	seed := rand.New(rand.NewPCG(1, 2))
	refused := 0
	for range 3000 {
		bad := slices.Clone(good)
		for range 1 + seed.IntN(3) {
			at := seed.IntN(len(bad))
			if seed.IntN(2) == 0 { // damage the footer in half of the cases, because it contains the lengths
				at = len(bad) - 1 - seed.IntN(len(bad)/3)
			}
			bad[at] = byte(seed.Uint32())
		}
		if seed.IntN(10) == 0 {
			bad = bad[:seed.IntN(len(bad))]
		}
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		s, _ := NewSource(pipeletapi.Parquet{Path: l.folder})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, _, err := s.Read(ctx, exactlyonce.Position{}, 1000)
		cancel()
		s.Close()
		if err != nil {
			if refused++; exactlyonce.KindOf(err) != exactlyonce.Refused {
				t.Fatalf("%v: it is to be refused", err)
			}
		}
	}
	if refused < 500 {
		t.Errorf("%d of 3000 were refused", refused)
	}
}

func TestCheck(t *testing.T) {
	for path, good := range map[string]bool{"/lake": true, "/lake/a": true, "lake": false, "/": false, "": false, "//": false} {
		if err := Check(pipeletapi.Parquet{Path: path}); (err == nil) != good {
			t.Errorf("%q: %v", path, err)
		}
	}
	for _, c := range []struct {
		src, dst string
		want     bool
	}{{"/lake/x", "/lake", true}, {"/lake", "/lake/", true}, {"/lake", "/lake/x", false}, {"/lakes", "/lake", false}} {
		if Overlap(pipeletapi.Parquet{Path: c.src}, pipeletapi.Parquet{Path: c.dst}) != c.want {
			t.Errorf("%s, %s", c.src, c.dst)
		}
	}
}
