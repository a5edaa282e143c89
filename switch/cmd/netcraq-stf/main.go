// Command netcraq-stf runs a P4 program on the interp engine against the packets of an STF file,
// and prints the differences. The program is the JSON that p4c writes for BMv2.
//
// \tnetcraq-stf PROGRAM.json FILE.stf
//
// The exit code is 0 if nothing differed, 1 if something did, and 2 if the file or the program
// could not be run.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/netcraq/netcraq/api/buildinfo"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/stf"
)

func main() {
	verbose := flag.Bool("v", false, "print what the program says with log_msg")
	version := flag.Bool("version", false, "print the version and exit")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: netcraq-stf [-v] PROGRAM.json FILE.stf")
		flag.PrintDefaults()
	}
	flag.Parse()
	if *version {
		fmt.Println("netcraq-stf", buildinfo.Get())
		return
	}
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	differences, err := run(flag.Arg(0), flag.Arg(1), *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "netcraq-stf:", err)
		os.Exit(2)
	}
	for _, d := range differences {
		fmt.Println(d)
	}
	if len(differences) > 0 {
		os.Exit(1)
	}
}

func run(program, file string, verbose bool) ([]string, error) {
	prog, err := bmv2json.ReadFile(program)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading an STF file: %w", err)
	}
	f, err := stf.Parse(file, text)
	if err != nil {
		return nil, err
	}
	var opts interp.Options
	if verbose {
		opts.Log = func(s string) { fmt.Println(s) }
	}
	p, err := interp.New(prog, opts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return stf.Run(f, stf.Interp(p))
}
