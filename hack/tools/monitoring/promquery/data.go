package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
)

// The series have a sample per interval, for as long as the longest range in an
// expression.
const (
	interval = time.Minute
	samples  = 61
	timeout  = time.Minute
)

// grows matches the series of counters and histograms: with a constant value
// their rate would be zero and their quantiles would not exist.
var grows = regexp.MustCompile(`_(total|bucket|sum|count)$`)

// data is a database of Prometheus with the series of a file.
type data struct {
	dir    string
	db     *tsdb.DB
	engine *promql.Engine
	now    time.Time
}

// load reads a file in Prometheus' text format.
func load(path string) (*data, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading series: %w", err)
	}
	d := &data{now: time.Now()}
	if d.dir, err = os.MkdirTemp("", "promnames-"); err != nil {
		return nil, fmt.Errorf("making folder of database: %w", err)
	}
	if d.db, err = tsdb.Open(d.dir, nil, nil, tsdb.DefaultOptions(), nil); err != nil {
		return nil, errors.Join(fmt.Errorf("opening database: %w", err), os.RemoveAll(d.dir))
	}
	if err := d.add(text); err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: timeout, Parser: parser.NewParser(parser.Options{})})
	return d, nil
}

// add stores the series with a sample per interval.
func (d *data) add(text []byte) error {
	for i := range samples {
		appender := d.db.Appender(context.Background())
		at := d.now.Add(-interval * time.Duration(samples-1-i)).UnixMilli()
		parse, err := textparse.New(text, "text/plain", nil, textparse.ParserOptions{})
		if err != nil {
			return fmt.Errorf("reading series: %w", err)
		}
		for {
			entry, err := parse.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return fmt.Errorf("reading series: %w", err)
			}
			if entry != textparse.EntrySeries {
				continue
			}
			var series labels.Labels
			_, _, value := parse.Series()
			parse.Labels(&series)
			if grows.MatchString(series.Get(labels.MetricName)) {
				value += float64(i)
			}
			if _, err := appender.Append(0, series, at, value); err != nil {
				return fmt.Errorf("adding %s: %w", series, err)
			}
		}
		if err := appender.Commit(); err != nil {
			return fmt.Errorf("adding series: %w", err)
		}
	}
	return nil
}

// count returns the number of series in the result of an expression.
func (d *data) count(text string) (int, error) {
	query, err := d.engine.NewInstantQuery(context.Background(), d.db, nil, text, d.now)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", text, err)
	}
	defer query.Close()
	result := query.Exec(context.Background())
	if result.Err != nil {
		return 0, fmt.Errorf("evaluating %s: %w", text, result.Err)
	}
	switch value := result.Value.(type) {
	case promql.Vector:
		return len(value), nil
	case promql.Scalar:
		return 1, nil
	default:
		return 0, fmt.Errorf("evaluating %s: the result is a %s", text, value.Type())
	}
}

// close deletes the database.
func (d *data) close() error {
	return errors.Join(d.db.Close(), os.RemoveAll(d.dir))
}
