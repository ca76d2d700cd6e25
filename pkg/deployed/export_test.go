package deployed

import "github.com/aws/aws-sdk-go-v2/aws"

// URL returns the URL to which requests are sent.
func (i *Invoker) URL() string { return i.url }

// SetClient replaces the HTTP client.
func (i *Invoker) SetClient(c aws.HTTPClient) { i.config.HTTPClient = c }

// OpenBy is Open with another client of AWS.
var OpenBy = open
