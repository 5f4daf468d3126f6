package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// commands are the subcommands by name.
var commands = map[string]func(context.Context, *flag.FlagSet, []string) error{
	"images":    images,
	"manifests": manifests,
	"sign":      signFile,
	"pull":      pull,
	"push":      push,
	"upload":    upload,
	"charts":    charts,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nova-release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New("name a command: images, manifests, charts, sign, pull, push or upload")
	}
	flags := flag.NewFlagSet("nova-release "+args[0], flag.ExitOnError)
	return commands[args[0]](ctx, flags, args[1:])
}

// argument parses flags and returns the one argument after them.
func argument(flags *flag.FlagSet, args []string, name string) (string, error) {
	_ = flags.Parse(args)
	if flags.NArg() != 1 {
		return "", fmt.Errorf("%s: name one %s after the flags", flags.Name(), name)
	}
	return flags.Arg(0), nil
}
