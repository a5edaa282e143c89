// Package statetest makes states for tests of the stores that keep them.
package statetest

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/keyspace"
	"github.com/netcraq/netcraq/controlplane/sessions"
)

// notKept lists the fields that are only used while a state is in memory. No store keeps them.
// Every other field must come back as it was saved.
var notKept = map[string]bool{
	"State.Lost":             true, // Load sets this field if it found only the directory
	"State.Directory.Edit":   true, // counts the changes of the directory in one process
	"State.Sessions[].until": true, // a time by one process's clock: after a takeover, a holder gets a full TTL
	"State.Sessions[].freed": true,
}

// Full returns a state in which every field, at any depth, is set. Numbers and texts are all
// different, booleans are true, and each list and map has two elements. It also fills fields that
// are added to the state later. So a store that returns Full unchanged keeps everything. Two
// different seeds make states that differ in every number and text.
func Full(t testing.TB, seed int) *saved.State {
	t.Helper()
	s := &saved.State{}
	f := filler{t: t, next: seed * 1000}
	f.fill(reflect.ValueOf(s).Elem(), "State")
	s.Version = saved.Version
	return s
}

type filler struct {
	t    testing.TB
	next int // the last number that was used
}

func (f *filler) fill(v reflect.Value, path string) {
	if notKept[path] {
		return
	}
	f.next++
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			field := path + "." + v.Type().Field(i).Name
			if !v.Type().Field(i).IsExported() && !notKept[field] {
				f.t.Errorf("%s is not exported, so no store can keep it: say in notKept why that is right", field)
			} else {
				f.fill(v.Field(i), field)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			f.fill(v.Index(i), path+"[]")
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			f.fill(key, path+"[key]")
			f.fill(value, path+"[]")
			v.SetMapIndex(key, value)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem(), path)
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d", f.next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(f.next))
		if v.Int() != int64(f.next) || v.IsZero() { // the field's type is too narrow for the number
			v.SetInt(int64(f.next%100 + 1))
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.next))
		if v.Uint() != uint64(f.next) || v.IsZero() {
			v.SetUint(uint64(f.next%200 + 1))
		}
	default:
		f.t.Errorf("%s is a %v: say how it is filled", path, v.Type())
	}
}

// Diff returns the difference between two states. It ignores the order of keys, which a store need
// not keep.
func Diff(want, got *saved.State) string {
	return cmp.Diff(want, got, cmpopts.SortSlices(func(a, b keyspace.Key) bool { return a.ID < b.ID }),
		cmpopts.IgnoreFields(keyspace.Snapshot{}, "Edit"), cmpopts.IgnoreUnexported(sessions.Lease{}))
}

// Zeros returns the paths of empty fields in a state, except for fields that no store keeps. For a
// state that Full made, it returns nothing.
func Zeros(s *saved.State) (out []string) {
	var look func(v reflect.Value, path string)
	look = func(v reflect.Value, path string) {
		switch {
		case notKept[path]:
		case v.IsZero():
			out = append(out, path)
		case v.Kind() == reflect.Struct:
			for i := range v.NumField() {
				look(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				look(v.Index(i), path+"[]")
			}
		case v.Kind() == reflect.Map:
			for _, k := range v.MapKeys() {
				look(v.MapIndex(k), path+"[]")
			}
		}
	}
	look(reflect.ValueOf(s).Elem(), "State")
	return out
}
