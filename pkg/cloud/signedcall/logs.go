package signedcall

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// LogQuery is a query of CloudWatch Logs Insights.
type LogQuery struct {
	// Groups are the names of the log groups.
	Groups []string `json:"logGroupNames"`
	Text   string   `json:"queryString"`
	// From and To are the period in seconds since 1970.
	From int64 `json:"startTime"`
	To   int64 `json:"endTime"`
	// Limit bounds the rows of the result.
	Limit int `json:"limit"`
}

// StartQuery starts a query, and returns its ID.
func StartQuery(ctx context.Context, config aws.Config, q LogQuery) (id string, err error) {
	var out queryID
	err = JSON(ctx, config, Logs, "StartQuery", q, &out)
	return out.ID, err
}

type queryID struct {
	ID string `json:"queryId"`
}

// GetQueryResults returns the status of a query and the rows that it has found,
// by the names of their fields.
func GetQueryResults(ctx context.Context, config aws.Config, id string) (
	status string, rows []map[string]string, err error,
) {
	var out struct {
		Status  string
		Results [][]struct{ Field, Value string }
	}
	if err := JSON(ctx, config, Logs, "GetQueryResults", queryID{id}, &out); err != nil {
		return "", nil, err
	}
	for _, result := range out.Results {
		row := make(map[string]string, len(result))
		for _, f := range result {
			row[f.Field] = f.Value
		}
		rows = append(rows, row)
	}
	return out.Status, rows, nil
}

// StopQuery stops a query.
func StopQuery(ctx context.Context, config aws.Config, id string) error {
	return JSON(ctx, config, Logs, "StopQuery", queryID{id}, nil)
}
