// Command recording makes a recording in the format asciicast v2 small enough
// for the repository. Programs such as make quickstart redraw the terminal five
// times a second; most redraws change a time only.
//
//	recording TITLE SPEED <recording >smaller
//
// SPEED divides all times.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// longest is the longest time in seconds without a redraw while the text
// changes in its digits only.
const longest = 5

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) != 2 {
		return fmt.Errorf("want a title and a speed, got %q", args)
	}
	speed, err := strconv.ParseFloat(args[1], 64)
	if err != nil || speed <= 0 {
		return fmt.Errorf("the speed %q is not a positive number", args[1])
	}
	header, frames, err := read(in)
	if err != nil {
		return err
	}
	header["title"] = args[0]
	lines := []any{header}
	for _, f := range thin(frames) {
		lines = append(lines, []any{json.Number(strconv.FormatFloat(f.at/speed, 'f', 3, 64)), "o", f.text})
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for _, line := range lines {
		if err := encoder.Encode(line); err != nil {
			return fmt.Errorf("writing recording: %w", err)
		}
	}
	return nil
}

// frame is output that ends before the next redraw.
type frame struct {
	at   float64
	text string
	// erased is the number of lines that the redraw erases: those of the frame
	// before it.
	erased int
}

// shape is the text without numbers and durations such as 5m12s, and without the spinner.
func (f frame) shape() string { return moving.ReplaceAllString(erase.ReplaceAllString(f.text, ""), "") }

// erase is the output of pterm before it draws an area again.
var erase = regexp.MustCompile(`\x1b\[1G(?:\x1b\[2K\x1b\[1A)+\x1b\[2K\x1b\[1G`)

// read returns the header and the frames of a recording. One redraw is several
// events, and one event can contain parts of two redraws.
func read(in io.Reader) (map[string]any, []frame, error) {
	var header map[string]any
	var text strings.Builder
	var begins []int
	var times []float64
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if header == nil {
			if err := json.Unmarshal(lines.Bytes(), &header); err != nil {
				return nil, nil, fmt.Errorf("reading header: %w", err)
			}
			continue
		}
		var at float64
		var kind, output string
		if err := json.Unmarshal(lines.Bytes(), &[]any{&at, &kind, &output}); err != nil {
			return nil, nil, fmt.Errorf("reading event: %w", err)
		}
		begins, times = append(begins, text.Len()), append(times, at)
		text.WriteString(output)
	}
	if err := lines.Err(); err != nil {
		return nil, nil, fmt.Errorf("reading recording: %w", err)
	}
	if len(times) == 0 {
		return nil, nil, errors.New("the recording is empty")
	}
	all, begin, erased, event := text.String(), 0, 0, 0
	var frames []frame
	for _, match := range append(erase.FindAllStringIndex(all, -1), []int{len(all), len(all)}) {
		for event+1 < len(begins) && begins[event+1] <= begin {
			event++
		}
		if match[0] > begin {
			frames = append(frames, frame{at: times[event], text: all[begin:match[0]], erased: erased})
		}
		begin, erased = match[0], strings.Count(all[match[0]:match[1]], "\x1b[1A")
	}
	return header, frames, nil
}

// moving are the parts of the text that change with the time only. The space before a duration
// shrinks as it grows.
var moving = regexp.MustCompile(` *[0-9][0-9.hms]*|[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]`)

// thin drops redraws that change digits only. A frame can be dropped if it has
// as many lines as the frame before it, because the next frame erases them.
func thin(frames []frame) []frame {
	kept := frames[:1:1]
	for i, f := range frames[1:] {
		last := kept[len(kept)-1]
		next := i+2 < len(frames)
		if next && f.erased == frames[i+2].erased && f.at-last.at < longest && f.shape() == last.shape() {
			continue
		}
		kept = append(kept, f)
	}
	return kept
}
