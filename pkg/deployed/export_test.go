package deployed

// URL returns the URL to which requests are sent.
func (i *Invoker) URL() string { return i.url }

// OpenBy is Open with another client of AWS.
var OpenBy = open
