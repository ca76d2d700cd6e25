variable "cidr_block" {
  type        = string
  description = "Range of the VPC."
}

resource "aws_vpc" "this" {
  cidr_block = var.cidr_block
}

output "vpc_id" {
  description = "ID of the VPC."
  value       = aws_vpc.this.id
}
