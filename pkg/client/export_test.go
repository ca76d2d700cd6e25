package client

import (
	"net/http"
	"time"
)

// SetTimes makes waits as short as tests need them.
func (c *Client) SetTimes(idle, wait, attempt time.Duration) {
	c.idle, c.Wait, c.metadata.Timeout = idle, wait, attempt
}

// Backoff is the wait after the first attempt.
func Backoff(response *http.Response) time.Duration { return backoff(firstWait, maxWait, 0, response) }

// LoadConfigOn is LoadConfig as it is on another system.
func LoadConfigOn(environ []string, home, system string) (*Config, error) {
	return loadConfig(newPlace(environ, home, system))
}

// ParseSettings reads one file.
func ParseSettings(data []byte) error {
	_, err := parseSettings(data)
	return err
}

// Bounds that tests go beyond.
const (
	MaxAnswer = maxAnswer
	MaxConfig = maxConfig
)
