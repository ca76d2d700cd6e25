package cloudwatch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/larder-registry/larder/pkg/deployed/metrics"
)

// ReadMetrics returns the metric values that CloudWatch would read from a
// function's output, by series. They are in lines of the Embedded Metric
// Format. A series has at most one dimension. ReadMetrics returns an error for
// a line that CloudWatch would ignore, or that has another namespace.
//
// Source:
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
func ReadMetrics(namespace, output string) (map[metrics.Series][]float64, error) {
	found := make(map[metrics.Series][]float64)
	for line := range strings.Lines(output) {
		if !strings.Contains(line, `"_aws"`) {
			continue
		}
		if err := readMetrics(namespace, line, found); err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
	}
	return found, nil
}

func readMetrics(namespace, line string, found map[metrics.Series][]float64) error {
	var members map[string]json.RawMessage
	if err := strictly([]byte(line), &members); err != nil {
		return err
	}
	var header struct {
		Timestamp         int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	}
	if err := strictly(members["_aws"], &header); err != nil {
		return err
	}
	if header.Timestamp <= 0 || len(header.CloudWatchMetrics) == 0 {
		return errors.New("the timestamp or the metrics are missing")
	}
	for _, directive := range header.CloudWatchMetrics {
		if directive.Namespace != namespace || len(directive.Dimensions) != 1 || len(directive.Dimensions[0]) > 1 ||
			len(directive.Metrics) == 0 {
			return errors.New("a directive needs a namespace, one set of at most one dimension, and metrics")
		}
		var dimension metrics.Dimension
		for _, name := range directive.Dimensions[0] {
			dimension.Name = name
			if err := strictly(members[name], &dimension.Value); err != nil || dimension.Value == "" {
				return errors.Join(fmt.Errorf("dimension %s is not a non-empty string", name), err)
			}
		}
		for _, m := range directive.Metrics {
			values, err := numbers(members[m.Name])
			if err != nil {
				return fmt.Errorf("metric %s: %w", m.Name, err)
			}
			series := metrics.Series{Name: m.Name, Dimension: dimension}
			found[series] = append(found[series], values...)
		}
	}
	return nil
}

// numbers parses one number, or a list of up to a hundred.
func numbers(value json.RawMessage) (values []float64, err error) {
	if bytes.HasPrefix(value, []byte("[")) {
		err = strictly(value, &values)
		if len(values) == 0 || len(values) > 100 {
			err = errors.Join(err, fmt.Errorf("the list has %d values", len(values)))
		}
		return values, err
	}
	var one *float64
	if err := strictly(value, &one); err != nil || one == nil {
		return nil, errors.Join(errors.New("not a number"), err)
	}
	return []float64{*one}, nil
}

// strictly decodes one JSON value. It rejects unknown fields.
func strictly(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is data after the JSON value")
	}
	return nil
}
