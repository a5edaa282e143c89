// Command testpod is the program in the pods of the cluster's tests, and in the cluster's pause
// containers. It is a static binary, and the only file of its container image.
//
//	testpod pause               wait, and reap orphaned processes
//	testpod serve               answer each HTTP request on port 8080 with the pod's name and the client's address
//	testpod get URL...          request each once; exit code 1 unless all answer with 200
//	testpod reach URL...        request all at once, with a short time limit, and print the answers
//	testpod talk URL SECONDS    send requests over one connection; print their number and the longest time without an answer
//	testpod pour URL SECONDS    read data from one connection, and print the bytes per second
//	testpod dials URL SECONDS   send requests, each on a new connection, and print their number per second
//	testpod lookup NAME...      print the addresses of each name
//	testpod send ADDRESS HEX    send a UDP datagram, and print the answer that comes within a second, in hexadecimal
//	testpod attack NAME...      run attacks of a hostile pod (attack.go); print the number of packets sent and the answers
//	testpod door SOCKET REQUEST...  send requests to the node API (door.go), and print the answers
//	testpod program NAME...     use the node API through its library (program.go), and print events
//	testpod besiege NAMESPACE SECONDS   attack the node API as a hostile pod (besiege.go), and print the results
//	testpod kill PID KILL|TERM  end a process of the same container, and print the time
//	testpod probe               read a key of the chain, and print the latency
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// patience bounds the wait for one answer.
const patience = 5 * time.Second

func main() {
	if len(os.Args) < 2 {
		os.Args = append(os.Args, "serve")
	}
	var err error
	switch args := os.Args[2:]; os.Args[1] {
	case "pause":
		pause()
	case "serve":
		err = serve()
	case "get":
		err = get(args)
	case "reach":
		reach(args)
	case "talk":
		err = talk(args)
	case "pour":
		err = pour(args)
	case "dials":
		err = dials(args)
	case "lookup":
		err = lookup(args)
	case "send":
		err = send(args)
	case "attack":
		err = attack(args)
	case "door":
		err = door(args)
	case "program":
		err = program(args)
	case "besiege":
		err = besiege(args)
	case "kill":
		err = kill(args)
	case "probe":
		err = probe(args)
	default:
		err = fmt.Errorf("no such verb: %s", os.Args[1])
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "testpod: %v\n", err)
		os.Exit(1)
	}
}

// pause runs as the first process of a pod, and reaps orphaned processes.
func pause() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}

func serve() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	go func() { // Without a handler, the first process of a PID namespace ignores the signal.
		ended := make(chan os.Signal, 1)
		signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
		<-ended
		os.Exit(0)
	}()
	return http.ListenAndServe(":8080", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == endless {
			for chunk := make([]byte, 1<<16); ; {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}
		fmt.Fprintf(w, "%s to %s", name, r.RemoteAddr)
	}))
}

// reach requests all URLs at once, with a short time limit. Unlike get, it is for URLs that may not
// answer.
func reach(urls []string) {
	client := http.Client{Timeout: patience / 4, Transport: &http.Transport{DisableKeepAlives: true}}
	lines := make(chan string)
	for _, url := range urls {
		go func() {
			answer, err := client.Get(url)
			if err != nil {
				lines <- fmt.Sprintf("%s: %v", url, err)
				return
			}
			text, _ := io.ReadAll(answer.Body) // text has as much of the answer as has arrived.
			answer.Body.Close()
			lines <- fmt.Sprintf("%s: %s", url, text)
		}()
	}
	for range urls {
		fmt.Println(<-lines)
	}
}

func get(urls []string) error {
	// Each request gets its own connection, so that a Kubernetes service chooses a backend each
	// time.
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	var failed error
	for _, url := range urls {
		answer, err := client.Get(url)
		if err != nil {
			failed = err
			fmt.Printf("%s: %v\n", url, err)
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", url, answer.Status)
		}
		if err != nil {
			failed = err
		}
		fmt.Printf("%s: %s\n", url, body)
	}
	return failed
}

// talk uses a single connection, and fails if the connection breaks. It does not use an
// http.Client, which opens another connection if a busy machine is slow to report that the first is
// free.
func talk(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("talk takes a URL and a number of seconds, not %d arguments", len(args))
	}
	seconds, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("talk: the number of seconds: %w", err)
	}
	request, err := http.NewRequest(http.MethodGet, args[0], nil)
	if err != nil {
		return fmt.Errorf("talk: %w", err)
	}
	nc, err := net.Dial("tcp", request.URL.Host)
	if err != nil {
		return err
	}
	defer nc.Close()
	in := bufio.NewReader(nc)
	asked, longest := 0, time.Duration(0)
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); asked++ {
		begin := time.Now()
		if err := request.Write(nc); err != nil {
			return fmt.Errorf("after %d answers: %w", asked, err)
		}
		answer, err := http.ReadResponse(in, request)
		if err != nil {
			return fmt.Errorf("after %d answers: %w", asked, err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return err
		}
		answer.Body.Close()
		longest = max(longest, time.Since(begin))
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Printf("%d answers by 1 connection, the longest wait %.3f s\n", asked, longest.Seconds())
	return nil
}

func lookup(names []string) error {
	for _, name := range names {
		addresses, err := net.LookupHost(name)
		if err != nil {
			return err
		}
		fmt.Println(name, addresses)
	}
	return nil
}

func send(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("send takes an address and a payload, not %d arguments", len(args))
	}
	payload, err := hex.DecodeString(args[1])
	if err != nil {
		return err
	}
	c, err := net.Dial("udp", args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write(payload); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	answer := make([]byte, 2048)
	n, err := c.Read(answer)
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	fmt.Println(hex.EncodeToString(answer[:n]))
	return nil
}
