package dev

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
)

// BenchmarkStart measures the time from the server's start until a key can be written.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := Start(context.Background(), Config{Switches: 3, Socket: filepath.Join(b.TempDir(), "s"),
			Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}
