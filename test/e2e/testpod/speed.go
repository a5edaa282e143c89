package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// endless is the URL path at which `testpod serve` sends data until the client stops reading.
const endless = "/endless"

// measured parses the arguments of a measurement.
func measured(args []string) (url string, length time.Duration, err error) {
	if len(args) != 2 {
		return "", 0, fmt.Errorf("it takes a URL and a number of seconds, not %d arguments", len(args))
	}
	seconds, err := strconv.ParseFloat(args[1], 64)
	return strings.TrimSuffix(args[0], "/"), time.Duration(seconds * float64(time.Second)), err
}

// pour reads from one connection for some time, and prints the bytes per second. It opens the
// connection before the measurement begins.
func pour(args []string) error {
	url, length, err := measured(args)
	if err != nil {
		return err
	}
	answer, err := http.Get(url + endless)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	into := make([]byte, 1<<16)
	for range 16 {
		if _, err := io.ReadFull(answer.Body, into); err != nil {
			return err
		}
	}
	total, begin := 0, time.Now()
	for time.Since(begin) < length {
		n, err := answer.Body.Read(into)
		if err != nil {
			return err
		}
		total += n
	}
	_, err = fmt.Fprintf(os.Stdout, "%.0f\n", float64(total)/time.Since(begin).Seconds())
	return err
}

// dials sends requests for some time, each on a new connection, and prints their number per second.
func dials(args []string) error {
	url, length, err := measured(args)
	if err != nil {
		return err
	}
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	count, begin := 0, time.Now()
	for ; time.Since(begin) < length; count++ {
		answer, err := client.Get(url + "/")
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(os.Stdout, "%.0f\n", float64(count)/time.Since(begin).Seconds())
	return err
}
