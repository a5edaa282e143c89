package gunzip

import (
	"bytes"
	"compress/gzip"
	"testing"
)

func TestBytes(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(`{"program": 1}`)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{packed.Bytes(), []byte(`{"program": 1}`)} {
		if got, err := Bytes(data); err != nil || string(got) != `{"program": 1}` {
			t.Errorf("%x: %q, %v", data, got, err)
		}
	}
	if got, err := Bytes(packed.Bytes()[:packed.Len()-6]); err == nil {
		t.Errorf("cut short it is read as %q", got)
	}
}
