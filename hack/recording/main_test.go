package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// redraw is the output of pterm for an area that had some lines.
func redraw(lines int, text string) string {
	return "\x1b[1G" + strings.Repeat("\x1b[2K\x1b[1A", lines) + "\x1b[2K\x1b[1G" + text
}

// TestRecording requires that each change of the text remains, that each frame
// erases the lines of the frame before it, and that most changes of a time are
// dropped.
func TestRecording(t *testing.T) {
	var in strings.Builder
	fmt.Fprintln(&in, `{"version": 2, "width": 110, "height": 32}`)
	write := func(at float64, text string) {
		// Programs write a redraw in parts.
		for i, part := range strings.SplitAfter(text, "\x1b[2K") {
			encoded, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&in, "[%f, \"o\", %s]\n", at+float64(i)/10000, encoded)
		}
	}
	write(0, "• a 0.0 s\r\n")
	for i := range 50 {
		write(1+float64(i)/5, redraw(1, fmt.Sprintf("• a %d.%d s\r\n", i/5, i%5*2)))
	}
	write(12, redraw(1, "✓ a 10.4 s\r\n• b 0.0 s\r\n"))
	write(13, redraw(2, "✓ a 10.4 s\r\n• b 1.0 s\r\n"))
	write(14, redraw(2, "✓ a 10.4 s\r\n✓ b 2.0 s\r\nready\r\n"))

	var out strings.Builder
	if err := run([]string{"make", "2"}, strings.NewReader(in.String()), &out); err != nil {
		t.Fatal(err)
	}
	header, frames, err := read(strings.NewReader(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	if header["title"] != "make" || header["width"] != 110.0 {
		t.Errorf("the header is %v", header)
	}
	var texts []string
	var times []float64
	for i, f := range frames {
		if i > 0 && f.erased != strings.Count(frames[i-1].text, "\r\n") {
			t.Errorf("frame %d erases %d lines of %q", i, f.erased, frames[i-1].text)
		}
		texts, times = append(texts, erase.ReplaceAllString(f.text, "")), append(times, f.at)
	}
	wantTexts := []string{
		"• a 0.0 s\r\n", "• a 4.0 s\r\n", "• a 9.0 s\r\n",
		"✓ a 10.4 s\r\n• b 0.0 s\r\n", "✓ a 10.4 s\r\n✓ b 2.0 s\r\nready\r\n",
	}
	if !slices.Equal(texts, wantTexts) {
		t.Errorf("the frames are %q, want %q", texts, wantTexts)
	}
	if want := []float64{0, 2.5, 5, 6, 7}; !slices.Equal(times, want) {
		t.Errorf("the times are %v, want %v", times, want)
	}
}

// TestRecordingDropsTheSpinner requires that a redraw which turns only the spinner and the time of a
// running line is dropped: there are five of them a second.
func TestRecordingDropsTheSpinner(t *testing.T) {
	var frames []frame
	spinner := []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
	for i := range 40 {
		at := 56 + float64(i)/5
		took := fmt.Sprintf("%ds", int(at))
		if at >= 60 {
			took = fmt.Sprintf("1m%ds", int(at)-60)
		}
		text := redraw(1, fmt.Sprintf("%c [1/2] Building  %6s  tools: building 7/18\r\n", spinner[i%len(spinner)], took))
		frames = append(frames, frame{at: at, text: text, erased: 1})
	}
	if got := len(thin(frames)); got > 3 {
		t.Errorf("%d of %d frames are kept, want one in %d s and the last one", got, len(frames), longest)
	}
}
